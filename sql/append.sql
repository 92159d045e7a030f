-- SPDX-License-Identifier: MIT
-- The way into the log.

CREATE OR REPLACE FUNCTION foldd.operation_digest(
    seq bigint, collection text, document text, id text, action text, fields jsonb, meta jsonb,
    received_at timestamptz, actor text) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    -- Lengths in front of the texts, so that no two rows give the same bytes.
    SELECT sha256(convert_to(
        seq::text || ' ' || length(collection)::text || ' ' || collection
        || length(document)::text || ' ' || document || length(id)::text || ' ' || id
        || length(action)::text || ' ' || action
        || coalesce(fields::text, '') || ' ' || coalesce(meta::text, '') || ' '
        || extract(epoch FROM received_at)::text || actor, 'UTF8'))
$$;
COMMENT ON FUNCTION foldd.operation_digest(bigint, text, text, text, text, jsonb, jsonb, timestamptz, text) IS
    'SHA-256 of everything that a row of the log says.';

CREATE OR REPLACE FUNCTION foldd.append(
    epoch bigint, token text, batch bigint, base bigint,
    documents text[], collections text[], ids text[], actions text[],
    fields jsonb[], metas jsonb[], received timestamptz[], actors text[])
    RETURNS TABLE (n bigint, seq bigint, same boolean)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stored bigint;
    new_head bigint := append.base + cardinality(append.ids) - 1;
BEGIN
    PERFORM foldd.enter(append.epoch, append.token);
    -- A dump restored under the running daemon takes back what its memory has, the term and all: the
    -- batch before this one is not there. The next term begins with what the database says (R1).
    IF NOT EXISTS (SELECT FROM foldd.ledger l WHERE l.batch = append.batch - 1) THEN
        RAISE EXCEPTION 'the log has gone back behind batch %: the database was restored meanwhile',
            append.batch USING ERRCODE = 'FD001';
    END IF;
    INSERT INTO foldd.operations (seq, collection, document, id, action, fields, meta, received_at,
                                  actor, digest)
    SELECT append.base + u.n - 1, u.collection, u.document, u.id, u.action, u.fields, u.meta,
           u.received_at, u.actor,
           foldd.operation_digest(append.base + u.n - 1, u.collection, u.document, u.id, u.action,
                                  u.fields, u.meta, u.received_at, u.actor)
    FROM unnest(append.documents, append.collections, append.ids, append.actions, append.fields,
                append.metas, append.received, append.actors) WITH ORDINALITY
         AS u(document, collection, id, action, fields, meta, received_at, actor, n)
    WHERE NOT EXISTS (
        SELECT FROM foldd.operations o
        WHERE o.document = u.document AND o.collection = u.collection AND o.id = u.id);
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored < cardinality(append.ids) THEN
        RETURN QUERY SELECT r.n, r.seq, r.same FROM foldd.receipts(
            append.documents, append.collections, append.ids, append.actions, append.fields,
            append.metas) r WHERE r.seq < append.base;
        SELECT coalesce(max(o.seq), append.base - 1) INTO new_head
        FROM foldd.operations o WHERE o.seq >= append.base;
    END IF;
    INSERT INTO foldd.ledger (batch, head) VALUES (append.batch, new_head);
    IF append.batch % 256 = 0 THEN
        DELETE FROM foldd.ledger l WHERE l.batch < append.batch - 256;
    END IF;
END
$$;
COMMENT ON FUNCTION foldd.append(bigint, text, bigint, bigint, text[], text[], text[], text[], jsonb[], jsonb[], timestamptz[], text[]) IS
    'For foldd: stores a batch of operations, the n-th with seq base + n - 1, except those whose ids are in the log already; answers for these n, the seq of the first, and whether the content is the same.';

CREATE OR REPLACE FUNCTION foldd.receipts(
    documents text[], collections text[], ids text[], actions text[], fields jsonb[], metas jsonb[])
    RETURNS TABLE (n bigint, seq bigint, same boolean)
    LANGUAGE sql STABLE
AS $$
    SELECT u.n, o.seq, o.action = u.action AND o.fields IS NOT DISTINCT FROM u.fields
                       AND o.meta IS NOT DISTINCT FROM u.meta
    FROM unnest(receipts.documents, receipts.collections, receipts.ids, receipts.actions,
                receipts.fields, receipts.metas) WITH ORDINALITY
         AS u(document, collection, id, action, fields, meta, n)
    JOIN foldd.operations o
      ON o.document = u.document AND o.collection = u.collection AND o.id = u.id
$$;
COMMENT ON FUNCTION foldd.receipts(text[], text[], text[], text[], jsonb[], jsonb[]) IS
    'Which of these operations are in the log: n, seq, and whether the content is the same.';
