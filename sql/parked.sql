-- SPDX-License-Identifier: MIT
-- Documents that do not fold, and what a worker asks when a fold did not go as planned.

CREATE OR REPLACE FUNCTION foldd.park(
    epoch bigint, token text, collection text, document text, seq bigint, sqlstate text,
    message text, delay_ms bigint) RETURNS integer
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    tries integer;
BEGIN
    PERFORM foldd.enter(park.epoch, park.token);
    INSERT INTO foldd.parked AS p (collection, document, seq, sqlstate, message, attempts,
                                   parked_at, next_try)
    VALUES (park.collection, park.document, park.seq, park.sqlstate, park.message, 1,
            clock_timestamp(), clock_timestamp() + park.delay_ms * interval '1 millisecond')
    ON CONFLICT (document, collection) DO UPDATE
    SET seq = excluded.seq, sqlstate = excluded.sqlstate, message = excluded.message,
        attempts = p.attempts + 1, next_try = excluded.next_try
    RETURNING p.attempts INTO tries;
    RETURN tries;
END
$$;
COMMENT ON FUNCTION foldd.park(bigint, text, text, text, bigint, text, text, bigint) IS
    'For foldd: writes down that a document does not fold from operation seq on, or that it failed again; answers how often it was tried.';

-- R12: the parked row goes in the transaction of the fold that takes the last operation known.
CREATE OR REPLACE FUNCTION foldd.fold_parked(
    epoch bigint, token text, collection text, document text, upto bigint, max_ops integer,
    OUT version bigint, OUT next_seq bigint)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    seqs bigint[];
BEGIN
    PERFORM foldd.enter(fold_parked.epoch, fold_parked.token);
    -- An operation is folded or skipped, never both: foldd.skip() takes the same lock.
    PERFORM FROM foldd.parked p
    WHERE p.document = fold_parked.document AND p.collection = fold_parked.collection
    FOR UPDATE;
    seqs := foldd.waiting(fold_parked.collection, fold_parked.document, fold_parked.upto,
                          fold_parked.max_ops);
    PERFORM FROM foldd.fold(fold_parked.epoch, fold_parked.token, seqs);
    fold_parked.next_seq := (foldd.waiting(fold_parked.collection, fold_parked.document,
                                           fold_parked.upto, 1))[1];
    IF fold_parked.next_seq IS NULL THEN
        DELETE FROM foldd.parked p
        WHERE p.document = fold_parked.document AND p.collection = fold_parked.collection;
    END IF;
    SELECT d.version INTO fold_parked.version FROM foldd.documents d
    WHERE d.id = fold_parked.document AND d.collection = fold_parked.collection;
END
$$;
COMMENT ON FUNCTION foldd.fold_parked(bigint, text, text, text, bigint, integer) IS
    'For foldd: folds up to max_ops waiting operations of a parked document; answers its version and the seq of the next one that waits. When none up to upto waits, the document is parked no more.';

CREATE OR REPLACE FUNCTION foldd.waiting(
    collection text, document text, upto bigint, max_ops integer) RETURNS bigint[]
    LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT o.seq FROM foldd.operations o
        WHERE o.document = waiting.document AND o.collection = waiting.collection
          AND o.seq <= waiting.upto
          AND o.seq > coalesce((SELECT d.version FROM foldd.documents d
                                WHERE d.id = waiting.document
                                  AND d.collection = waiting.collection), 0)
        ORDER BY o.seq LIMIT waiting.max_ops)
$$;
COMMENT ON FUNCTION foldd.waiting(text, text, bigint, integer) IS
    'The first max_ops operations of a document that are above its version and not above upto.';

-- R14: of each document that one of these operations belongs to, the version it has now.
CREATE OR REPLACE FUNCTION foldd.versions(seqs bigint[])
    RETURNS TABLE (seq bigint, version bigint)
    LANGUAGE sql STABLE
AS $$
    SELECT o.seq, coalesce(d.version, 0)
    FROM foldd.operations o
    LEFT JOIN foldd.documents d ON d.id = o.document AND d.collection = o.collection
    WHERE o.seq = ANY (versions.seqs)
$$;
COMMENT ON FUNCTION foldd.versions(bigint[]) IS
    'For each operation named: the version that its document has now, 0 if there is none. An operation that is not in the log is not answered.';

-- R16: one look names the rows that somebody else holds.
CREATE OR REPLACE FUNCTION foldd.locked(seqs bigint[]) RETURNS SETOF bigint
    LANGUAGE sql VOLATILE
AS $$
    WITH wanted AS MATERIALIZED (
        SELECT o.seq, o.document, o.collection FROM foldd.operations o
        WHERE o.seq = ANY (locked.seqs)
    ), free AS MATERIALIZED (
        SELECT d.id, d.collection FROM foldd.documents d
        WHERE (d.id, d.collection) IN (SELECT w.document, w.collection FROM wanted w)
        FOR NO KEY UPDATE SKIP LOCKED
    )
    SELECT w.seq FROM wanted w
    JOIN foldd.documents d ON d.id = w.document AND d.collection = w.collection
    WHERE NOT EXISTS (SELECT FROM free f WHERE f.id = w.document AND f.collection = w.collection)
$$;
COMMENT ON FUNCTION foldd.locked(bigint[]) IS
    'Of the operations named, those whose document''s row is locked by another session.';
