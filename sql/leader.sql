-- SPDX-License-Identifier: MIT
-- Terms. Advisory locks have the class 1718578276 ("fold"): 1 is the writers' lock, 2 is held by the
-- leading daemon's session, 3 by whoever migrates.

CREATE OR REPLACE FUNCTION foldd.enter(epoch bigint, token text) RETURNS void
    LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    -- R2: lock, then look, in two statements: each has a snapshot of its own.
    PERFORM pg_advisory_xact_lock_shared(1718578276, 1);
    PERFORM FROM foldd.leader l WHERE l.epoch = enter.epoch AND l.token = enter.token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the term % is over: another instance leads', enter.epoch
            USING ERRCODE = 'FD001';
    END IF;
END
$$;
COMMENT ON FUNCTION foldd.enter(bigint, text) IS
    'First call of every write transaction: raises FD001 unless the term is the present one, and keeps it the present one until the transaction ends.';

CREATE OR REPLACE FUNCTION foldd.head() RETURNS bigint
    LANGUAGE sql STABLE
AS $$
    SELECT l.head FROM foldd.ledger l ORDER BY l.batch DESC LIMIT 1
$$;
COMMENT ON FUNCTION foldd.head() IS
    'seq of the last committed operation. Whoever has seen head() = n can read everything up to n.';

CREATE OR REPLACE FUNCTION foldd.lead(
    new_token text, new_instance text,
    OUT epoch bigint, OUT batch bigint, OUT head bigint, OUT cursor bigint, OUT received_us bigint,
    OUT ingest_paused boolean, OUT folding_paused boolean)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    -- Waits for every write transaction of the term before, on whichever backend it is (R7).
    PERFORM pg_advisory_xact_lock(1718578276, 1);
    INSERT INTO foldd.leader AS l (epoch, token, system_id, timeline, since, instance)
    VALUES (1, lead.new_token, (SELECT s.system_identifier FROM pg_control_system() s),
            ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
            clock_timestamp(), lead.new_instance)
    ON CONFLICT (one) DO UPDATE
    SET epoch = l.epoch + 1, token = excluded.token, system_id = excluded.system_id,
        timeline = excluded.timeline, since = excluded.since, instance = excluded.instance
    RETURNING l.epoch INTO lead.epoch;
    SELECT l.batch, l.head INTO lead.batch, lead.head
    FROM foldd.ledger l ORDER BY l.batch DESC LIMIT 1;
    SELECT greatest(lead.head, o.seq), (extract(epoch FROM o.received_at) * 1000000)::bigint
    INTO lead.head, lead.received_us
    FROM foldd.operations o ORDER BY o.seq DESC LIMIT 1;
    lead.head := coalesce(lead.head, 0);
    lead.batch := coalesce(lead.batch, 0);
    lead.received_us := coalesce(lead.received_us, 0);
    SELECT c.seq INTO lead.cursor FROM foldd.cursor c;
    lead.ingest_paused := EXISTS (SELECT FROM foldd.pauses p WHERE p.what = 'ingest');
    lead.folding_paused := EXISTS (SELECT FROM foldd.pauses p WHERE p.what = 'folding');
END
$$;
COMMENT ON FUNCTION foldd.lead(text, text) IS
    'Begins a term: ends all others, and answers where the log and the cursor stand.';

CREATE OR REPLACE FUNCTION foldd.save_cursor(epoch bigint, token text, seq bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM foldd.enter(save_cursor.epoch, save_cursor.token);
    UPDATE foldd.cursor c SET seq = save_cursor.seq WHERE c.seq < save_cursor.seq;
END
$$;
COMMENT ON FUNCTION foldd.save_cursor(bigint, text, bigint) IS 'For foldd: moves the cursor forward, never back.';
