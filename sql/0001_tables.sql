-- SPDX-License-Identifier: MIT
-- 0001: the tables.
--
-- Rules for the per-document tables (operations, documents, outcomes), so that the same schema can be
-- distributed by document: the document is in every primary key and unique constraint; seq is a value
-- that the daemon sends, never a default; no triggers, rules or foreign keys. Keys are COLLATE "C":
-- byte order, the same on every machine.

CREATE TABLE foldd.operations (
    seq         bigint NOT NULL,
    collection  text COLLATE "C" NOT NULL,
    document    text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    fields      jsonb,
    meta        jsonb,
    received_at timestamptz NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    digest      bytea NOT NULL,
    -- Idempotency is this constraint. It also finds one document's operations; an index on
    -- (document, seq) besides would cost a quarter of bare ingest.
    PRIMARY KEY (document, collection, id)
);
CREATE INDEX operations_seq ON foldd.operations (seq);
COMMENT ON TABLE foldd.operations IS
    'The log: every accepted operation, append only, in the order of seq, which is the order of commit. Readers that must not miss anything stop at foldd.head().';
COMMENT ON COLUMN foldd.operations.seq IS 'Position in the log. Numbers may be missing; none is given late or twice.';
COMMENT ON COLUMN foldd.operations.collection IS 'The document''s collection, 1 to 255 bytes.';
COMMENT ON COLUMN foldd.operations.document IS 'The document''s id within its collection, 1 to 1024 bytes.';
COMMENT ON COLUMN foldd.operations.id IS 'Idempotency key, 1 to 255 bytes, unique within the document; made by foldd when the client sent none.';
COMMENT ON COLUMN foldd.operations.action IS 'create, update, delete, or an action that the collection''s reducer takes.';
COMMENT ON COLUMN foldd.operations.fields IS 'The operation''s content: the new fields (create) or an RFC 7396 merge patch (update).';
COMMENT ON COLUMN foldd.operations.meta IS 'Who, why, trace ids: stored, never folded.';
COMMENT ON COLUMN foldd.operations.received_at IS 'When foldd read the operation; never decreases with seq.';
COMMENT ON COLUMN foldd.operations.actor IS 'The sender: uid:N of the peer on the socket.';
COMMENT ON COLUMN foldd.operations.digest IS 'foldd.operation_digest() of the row when it was written; a row whose digest differs was changed since.';

CREATE TABLE foldd.documents (
    collection  text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    revision    bigint NOT NULL,
    deleted     boolean NOT NULL,
    created_at  timestamptz,
    updated_at  timestamptz,
    base        bigint NOT NULL,
    gen         bigint NOT NULL,
    fields      jsonb NOT NULL,
    outcomes    jsonb,
    PRIMARY KEY (id, collection)
) WITH (fillfactor = 70);
COMMENT ON TABLE foldd.documents IS
    'One row for each document: the fold of its operations. Rows are never removed; a deleted document keeps a tombstone.';
COMMENT ON COLUMN foldd.documents.collection IS 'The document''s collection.';
COMMENT ON COLUMN foldd.documents.id IS 'The document''s id within its collection.';
COMMENT ON COLUMN foldd.documents.version IS 'seq of the last operation that this row contains, whatever became of it.';
COMMENT ON COLUMN foldd.documents.revision IS 'How many operations took effect. 0: none ever did; the document counts as never made.';
COMMENT ON COLUMN foldd.documents.deleted IS 'The row is a tombstone, or no operation ever took effect.';
COMMENT ON COLUMN foldd.documents.created_at IS 'received_at of the first operation that took effect.';
COMMENT ON COLUMN foldd.documents.updated_at IS 'received_at of the last operation that took effect.';
COMMENT ON COLUMN foldd.documents.base IS 'The version that the last fold read: a fold takes effect only on the row that it read.';
COMMENT ON COLUMN foldd.documents.gen IS 'Raised by everything that changes a row without moving its version.';
COMMENT ON COLUMN foldd.documents.fields IS 'The document. An empty object when deleted.';
COMMENT ON COLUMN foldd.documents.outcomes IS 'What the last fold did not plainly fold, on its way to foldd.outcomes; NULL when it folded everything.';

CREATE TABLE foldd.outcomes (
    seq         bigint NOT NULL,
    collection  text COLLATE "C" NOT NULL,
    document    text COLLATE "C" NOT NULL,
    outcome     text NOT NULL,
    reason      text NOT NULL,
    PRIMARY KEY (document, collection, seq)
);
COMMENT ON TABLE foldd.outcomes IS
    'Operations that were not plainly folded. An operation that has no row here and whose document''s version has reached it was folded.';
COMMENT ON COLUMN foldd.outcomes.seq IS 'The operation.';
COMMENT ON COLUMN foldd.outcomes.collection IS 'Its document''s collection.';
COMMENT ON COLUMN foldd.outcomes.document IS 'Its document.';
COMMENT ON COLUMN foldd.outcomes.outcome IS 'ignored (had no effect by the rules), rejected (could not apply) or skipped (by an operator).';
COMMENT ON COLUMN foldd.outcomes.reason IS 'Why, for a person.';

CREATE TABLE foldd.leader (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch       bigint NOT NULL,
    token       text NOT NULL,
    system_id   bigint NOT NULL,
    timeline    bigint NOT NULL,
    floor       bigint NOT NULL,
    since       timestamptz NOT NULL,
    instance    text NOT NULL
);
COMMENT ON TABLE foldd.leader IS 'One row: which daemon may write. Every write transaction checks epoch and token under a lock.';
COMMENT ON COLUMN foldd.leader.epoch IS 'Number of the term; raised whenever a daemon takes the lead.';
COMMENT ON COLUMN foldd.leader.token IS 'Random, drawn for each term: tells apart two terms of one number after a restored backup.';
COMMENT ON COLUMN foldd.leader.system_id IS 'The cluster''s system identifier when the term began.';
COMMENT ON COLUMN foldd.leader.timeline IS 'The cluster''s timeline when the term began.';
COMMENT ON COLUMN foldd.leader.floor IS 'No seq up to here is given any more: raised when acknowledged operations may have been lost.';
COMMENT ON COLUMN foldd.leader.since IS 'When the term began.';
COMMENT ON COLUMN foldd.leader.instance IS 'The daemon: host, process id and socket.';

CREATE TABLE foldd.ledger (
    batch       bigint PRIMARY KEY,
    head        bigint NOT NULL
);
COMMENT ON TABLE foldd.ledger IS
    'One row for each of the latest ingest transactions: tells after a lost connection whether a batch is in. Pruned now and then.';
COMMENT ON COLUMN foldd.ledger.batch IS 'Number of the batch, counted over all terms.';
COMMENT ON COLUMN foldd.ledger.head IS 'The log''s head when the batch had committed.';
INSERT INTO foldd.ledger VALUES (0, 0);

CREATE TABLE foldd.cursor (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    seq         bigint NOT NULL
) WITH (fillfactor = 10);
COMMENT ON TABLE foldd.cursor IS 'One row: every operation up to seq is settled: folded, ignored, rejected, skipped, or its document is parked.';
COMMENT ON COLUMN foldd.cursor.seq IS 'The cursor.';
INSERT INTO foldd.cursor VALUES (true, 0);

CREATE TABLE foldd.parked (
    collection  text COLLATE "C" NOT NULL,
    document    text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    sqlstate    text NOT NULL,
    message     text NOT NULL,
    attempts    integer NOT NULL,
    parked_at   timestamptz NOT NULL,
    next_try    timestamptz NOT NULL,
    PRIMARY KEY (document, collection)
);
COMMENT ON TABLE foldd.parked IS
    'Documents whose fold failed: they are tried again at next_try, and hold nobody else up. Operations before seq are folded.';
COMMENT ON COLUMN foldd.parked.collection IS 'The document''s collection.';
COMMENT ON COLUMN foldd.parked.document IS 'The document.';
COMMENT ON COLUMN foldd.parked.seq IS 'The operation that does not fold.';
COMMENT ON COLUMN foldd.parked.sqlstate IS 'SQLSTATE of the last failure (PostgreSQL documentation, appendix A).';
COMMENT ON COLUMN foldd.parked.message IS 'PostgreSQL''s message of the last failure.';
COMMENT ON COLUMN foldd.parked.attempts IS 'How often the fold was tried.';
COMMENT ON COLUMN foldd.parked.parked_at IS 'When the document was parked.';
COMMENT ON COLUMN foldd.parked.next_try IS 'When foldd tries again.';

CREATE TABLE foldd.skipped (
    seq         bigint PRIMARY KEY,
    collection  text COLLATE "C" NOT NULL,
    document    text COLLATE "C" NOT NULL,
    reason      text NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    skipped_at  timestamptz NOT NULL
);
COMMENT ON TABLE foldd.skipped IS 'Operations that an operator has skipped: every fold leaves them out.';
COMMENT ON COLUMN foldd.skipped.seq IS 'The operation.';
COMMENT ON COLUMN foldd.skipped.collection IS 'Its document''s collection.';
COMMENT ON COLUMN foldd.skipped.document IS 'Its document.';
COMMENT ON COLUMN foldd.skipped.reason IS 'Why, in the operator''s words.';
COMMENT ON COLUMN foldd.skipped.actor IS 'Who: uid:N of the peer on the socket.';
COMMENT ON COLUMN foldd.skipped.skipped_at IS 'When.';

CREATE TABLE foldd.pauses (
    what        text PRIMARY KEY CHECK (what IN ('ingest', 'folding')),
    reason      text NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    since       timestamptz NOT NULL
);
COMMENT ON TABLE foldd.pauses IS 'What an operator has paused, until resumed; also over restarts.';
COMMENT ON COLUMN foldd.pauses.what IS 'ingest: nothing is stored; folding: nothing is folded.';
COMMENT ON COLUMN foldd.pauses.reason IS 'Why, in the operator''s words.';
COMMENT ON COLUMN foldd.pauses.actor IS 'Who: uid:N of the peer on the socket.';
COMMENT ON COLUMN foldd.pauses.since IS 'Since when.';

CREATE TYPE foldd.fold_state AS (
    fields      jsonb,
    deleted     boolean,
    revision    bigint,
    created_at  timestamptz,
    updated_at  timestamptz,
    outcomes    jsonb
);
COMMENT ON TYPE foldd.fold_state IS 'A document on its way through foldd.fold_state(): the transition state of the fold.';
