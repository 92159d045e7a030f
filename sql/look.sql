-- SPDX-License-Identifier: MIT
-- What became of an operation.

CREATE OR REPLACE FUNCTION foldd.operation_state(
    of_collection text, of_document text, of_id text, of_seq bigint)
    RETURNS TABLE (seq bigint, collection text, document text, id text, action text,
                   received_at timestamptz, actor text,
                   version bigint, outcome text, reason text, sqlstate text)
    LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    o foldd.operations;
BEGIN
    IF of_id IS NOT NULL THEN
        SELECT * INTO o FROM foldd.operations o
        WHERE o.document = of_document
          AND o.collection = of_collection AND o.id = of_id;
    ELSE
        SELECT * INTO o FROM foldd.operations o WHERE o.seq = of_seq
          AND (of_document IS NULL
               OR o.document = of_document
                  AND o.collection = of_collection);
    END IF;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT o.seq, o.collection, o.document, o.id, o.action, o.received_at, o.actor,
           coalesce(d.version, 0),
           CASE WHEN t.outcome IS NOT NULL THEN t.outcome
                WHEN d.version >= o.seq THEN 'folded'
                WHEN p.seq IS NOT NULL THEN 'parked' END,
           coalesce(t.reason, CASE WHEN d.version >= o.seq THEN NULL ELSE p.message END),
           CASE WHEN d.version >= o.seq THEN NULL ELSE p.sqlstate END
    FROM (SELECT 1) AS always
    LEFT JOIN foldd.documents d ON d.id = o.document AND d.collection = o.collection
    LEFT JOIN foldd.outcomes t
           ON t.document = o.document AND t.collection = o.collection AND t.seq = o.seq
    LEFT JOIN foldd.parked p ON p.document = o.document AND p.collection = o.collection;
END
$$;
COMMENT ON FUNCTION foldd.operation_state(text, text, text, bigint) IS
    'One operation, named by document and id, document and seq, or seq alone (the others NULL), with its outcome: folded, ignored, rejected, skipped or parked, and NULL while it waits to be folded. No row: it is not in the log.';
