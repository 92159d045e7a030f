-- SPDX-License-Identifier: MIT
-- The fold: how operations become a document, and the one statement that does it for many.

CREATE OR REPLACE FUNCTION foldd.outcome(seq bigint, outcome text, reason text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT jsonb_set(jsonb_set(('[[' || seq::text || ',"",""]]')::jsonb,
                               '{0,1}', ('"' || outcome || '"')::jsonb),
                     '{0,2}', ('"' || reason || '"')::jsonb)
$$;
COMMENT ON FUNCTION foldd.outcome(bigint, text, text) IS
    'One entry of documents.outcomes: [[seq, outcome, reason]]. The texts are foldd''s own and need no escaping.';

-- One operation onto one state. The document that the fold starts from comes in the initial_
-- arguments of every row (its fields only as a pointer, if large); state is NULL on the first.
CREATE OR REPLACE FUNCTION foldd.fold_step(
    state foldd.fold_state, initial_fields jsonb, initial_deleted boolean, initial_revision bigint,
    initial_created_at timestamptz, initial_updated_at timestamptz,
    seq bigint, action text, fields jsonb, received_at timestamptz) RETURNS foldd.fold_state
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    result jsonb;
BEGIN
    IF state.revision IS NULL THEN
        IF initial_revision IS NULL THEN
            state.deleted := true;
            state.revision := 0;
        ELSE
            state.fields := initial_fields;
            state.deleted := initial_deleted;
            state.revision := initial_revision;
            state.created_at := initial_created_at;
            state.updated_at := initial_updated_at;
        END IF;
    END IF;
    IF action = 'update' AND state.deleted AND state.revision > 0 THEN
        state.outcomes := coalesce(state.outcomes, '[]')
            || foldd.outcome(seq, 'ignored', 'the document is deleted');
        RETURN state;
    ELSIF action IN ('create', 'update') THEN
        -- The empty object gives the plain form of a value that is stored compressed.
        result := CASE WHEN action = 'create' THEN fields || '{}'
                       ELSE foldd.merge_patch(state.fields, fields) END;
        -- R20: 16 MiB, counted as PostgreSQL holds it in memory; a constant of the schema.
        IF pg_column_size(result) > 16777216 THEN
            state.outcomes := coalesce(state.outcomes, '[]')
                || foldd.outcome(seq, 'rejected', 'the document would be larger than 16 MiB');
            RETURN state;
        END IF;
        state.deleted := false;
    ELSIF action = 'delete' THEN
        result := '{}';
        state.deleted := true;
    ELSIF action IS NULL THEN
        -- Left out by an operator (R19).
        state.outcomes := coalesce(state.outcomes, '[]')
            || foldd.outcome(seq, 'skipped', 'by an operator: see foldd.skipped');
        RETURN state;
    ELSE
        RAISE EXCEPTION 'no rule for action "%" of operation %', action, seq
            USING ERRCODE = 'FD010';
    END IF;
    state.fields := result;
    state.revision := state.revision + 1;
    IF state.created_at IS NULL THEN
        state.created_at := received_at;
    END IF;
    state.updated_at := received_at;
    RETURN state;
END
$$;
COMMENT ON FUNCTION foldd.fold_step(foldd.fold_state, jsonb, boolean, bigint, timestamptz, timestamptz, bigint, text, jsonb, timestamptz) IS
    'Transition function of foldd.fold_state(): applies one operation. An action of NULL is one that was skipped; unknown actions raise FD010.';

CREATE OR REPLACE AGGREGATE foldd.fold_state(
    initial_fields jsonb, initial_deleted boolean, initial_revision bigint,
    initial_created_at timestamptz, initial_updated_at timestamptz,
    seq bigint, action text, fields jsonb, received_at timestamptz) (
    SFUNC = foldd.fold_step,
    STYPE = foldd.fold_state
);
COMMENT ON AGGREGATE foldd.fold_state(jsonb, boolean, bigint, timestamptz, timestamptz, bigint, text, jsonb, timestamptz) IS
    'Folds operations, given ORDER BY seq, onto the document in the initial_ arguments (NULLs: there is none).';

-- The statement of every worker. Each operation above its document's version is applied; the guard
-- in DO UPDATE (R13) lets the result take effect only on the row that was read. Rows are written, and
-- so locked, in the order of (id, collection) (R17). Outcomes ride with the fold (R18).
CREATE OR REPLACE FUNCTION foldd.fold(epoch bigint, token text, seqs bigint[])
    RETURNS TABLE (version bigint, base bigint, outcomes jsonb)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    skips bigint[];
BEGIN
    PERFORM foldd.enter(fold.epoch, fold.token);
    IF EXISTS (SELECT FROM foldd.skipped) THEN
        skips := ARRAY(SELECT k.seq FROM foldd.skipped k WHERE k.seq = ANY (fold.seqs));
    END IF;
    RETURN QUERY
    WITH folded AS (
        INSERT INTO foldd.documents AS d (collection, id, version, revision, deleted, created_at,
                                          updated_at, base, gen, fields, outcomes)
        SELECT f.collection, f.document, f.version, (f.state).revision, (f.state).deleted,
               (f.state).created_at, (f.state).updated_at, f.base, f.gen,
               coalesce((f.state).fields, '{}'), (f.state).outcomes
        FROM (
            SELECT o.document, o.collection, max(o.seq) AS version,
                   coalesce(max(p.version), 0) AS base, coalesce(max(p.gen), 0) AS gen,
                   foldd.fold_state(p.fields, p.deleted, p.revision, p.created_at, p.updated_at,
                                    o.seq, CASE WHEN o.seq = ANY (skips) THEN NULL ELSE o.action END,
                                    o.fields, o.received_at ORDER BY o.seq) AS state
            FROM foldd.operations o
            LEFT JOIN foldd.documents p ON p.id = o.document AND p.collection = o.collection
            WHERE o.seq = ANY (fold.seqs) AND o.seq > coalesce(p.version, 0)
            GROUP BY o.document, o.collection
            ORDER BY o.document, o.collection
        ) f
        ON CONFLICT (id, collection) DO UPDATE
        SET version = excluded.version, revision = excluded.revision, deleted = excluded.deleted,
            created_at = excluded.created_at, updated_at = excluded.updated_at,
            base = excluded.base, fields = excluded.fields, outcomes = excluded.outcomes
        WHERE d.version = excluded.base AND d.gen = excluded.gen
        RETURNING d.id, d.collection, d.version, d.base, d.outcomes
    ), noted AS (
        INSERT INTO foldd.outcomes (seq, collection, document, outcome, reason)
        SELECT (entry -> 0)::bigint, folded.collection, folded.id, entry ->> 1, entry ->> 2
        FROM folded CROSS JOIN jsonb_array_elements(folded.outcomes) AS entry
        WHERE folded.outcomes IS NOT NULL
        ON CONFLICT (document, collection, seq) DO NOTHING
    )
    SELECT folded.version, folded.base, folded.outcomes FROM folded;
END
$$;
COMMENT ON FUNCTION foldd.fold(bigint, text, bigint[]) IS
    'For foldd''s workers: folds the operations named by seq; answers the new version of every document that it changed, the one before, and what was not plainly folded. A document that is missing from the answer was changed by somebody else or had folded them already.';
