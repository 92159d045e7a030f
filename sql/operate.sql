-- SPDX-License-Identifier: MIT
-- What operators ask for on the socket. What they are told is done is durable (R19).

CREATE OR REPLACE FUNCTION foldd.retry(epoch bigint, token text, collection text, document text)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    found_rows bigint;
BEGIN
    PERFORM foldd.enter(retry.epoch, retry.token);
    PERFORM set_config('synchronous_commit', 'on', true);
    UPDATE foldd.parked p SET next_try = clock_timestamp()
    WHERE retry.document IS NULL
       OR p.document = retry.document AND p.collection = retry.collection;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN found_rows;
END
$$;
COMMENT ON FUNCTION foldd.retry(bigint, text, text, text) IS
    'For foldd: makes a parked document (NULL: all of them) due now; answers how many that were.';

CREATE OR REPLACE FUNCTION foldd.skip(
    epoch bigint, token text, collection text, document text, seq bigint, reason text, actor text)
    RETURNS text
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    PERFORM foldd.enter(skip.epoch, skip.token);
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM FROM foldd.operations o
    WHERE o.seq = skip.seq AND o.document = skip.document AND o.collection = skip.collection;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    PERFORM FROM foldd.parked p
    WHERE p.document = skip.document AND p.collection = skip.collection FOR UPDATE;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM foldd.skipped k WHERE k.seq = skip.seq)
                    THEN 'skipped' ELSE 'not parked' END;
    END IF;
    IF EXISTS (SELECT FROM foldd.documents d WHERE d.id = skip.document
               AND d.collection = skip.collection AND d.version >= skip.seq) THEN
        RETURN 'settled';
    END IF;
    INSERT INTO foldd.skipped (seq, collection, document, reason, actor, skipped_at)
    VALUES (skip.seq, skip.collection, skip.document, skip.reason, skip.actor, clock_timestamp())
    ON CONFLICT DO NOTHING;
    UPDATE foldd.parked p SET next_try = clock_timestamp()
    WHERE p.document = skip.document AND p.collection = skip.collection;
    RETURN 'skipped';
END
$$;
COMMENT ON FUNCTION foldd.skip(bigint, text, text, text, bigint, text, text) IS
    'For foldd: leaves an operation of a parked document out of every fold, and makes the document due now. Answers skipped, unknown (no such operation), not parked, or settled (it was folded).';

CREATE OR REPLACE FUNCTION foldd.set_pause(
    epoch bigint, token text, what text, paused boolean, reason text, actor text) RETURNS void
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    PERFORM foldd.enter(set_pause.epoch, set_pause.token);
    PERFORM set_config('synchronous_commit', 'on', true);
    IF set_pause.paused THEN
        INSERT INTO foldd.pauses (what, reason, actor, since)
        VALUES (set_pause.what, set_pause.reason, set_pause.actor, clock_timestamp())
        ON CONFLICT (what) DO NOTHING;
    ELSE
        DELETE FROM foldd.pauses p WHERE p.what = set_pause.what;
    END IF;
END
$$;
COMMENT ON FUNCTION foldd.set_pause(bigint, text, text, boolean, text, text) IS
    'For foldd: pauses or resumes ingest or folding, also for the daemons that come.';
