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
    new_token text, new_instance text, known_head bigint,
    OUT epoch bigint, OUT batch bigint, OUT head bigint, OUT cursor bigint, OUT received_us bigint,
    OUT ingest_paused boolean, OUT folding_paused boolean, OUT floor bigint, OUT lost text)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    this_system bigint := (SELECT s.system_identifier FROM pg_control_system() s);
    this_timeline bigint := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
    before foldd.leader;
    newest foldd.operations;
BEGIN
    -- Waits for every write transaction of the term before, on whichever backend it is (R7).
    PERFORM pg_advisory_xact_lock(1718578276, 1);
    SELECT * INTO before FROM foldd.leader l;
    SELECT l.batch, l.head INTO lead.batch, lead.head
    FROM foldd.ledger l ORDER BY l.batch DESC LIMIT 1;
    SELECT * INTO newest FROM foldd.operations o ORDER BY o.seq DESC LIMIT 1;
    lead.batch := coalesce(lead.batch, 0);
    lead.head := greatest(lead.head, newest.seq, 0);
    lead.received_us := coalesce((extract(epoch FROM newest.received_at) * 1000000)::bigint, 0);
    lead.floor := coalesce(before.floor, 0);
    -- R6: what was acknowledged and is gone here may live on elsewhere under its number.
    lead.lost := CASE
        WHEN lead.known_head > lead.head THEN 'the database has lost operations'
        WHEN before.system_id <> this_system THEN 'the database is a copy in another cluster'
        WHEN before.timeline <> this_timeline THEN 'the database was restored or failed over' END;
    IF lead.lost IS NOT NULL THEN
        lead.floor := greatest(lead.floor, lead.head, lead.known_head) + 4294967296;
    END IF;
    INSERT INTO foldd.leader AS l (epoch, token, system_id, timeline, floor, since, instance)
    VALUES (1, lead.new_token, this_system, this_timeline, lead.floor, clock_timestamp(),
            lead.new_instance)
    ON CONFLICT (one) DO UPDATE
    SET epoch = l.epoch + 1, token = excluded.token, system_id = excluded.system_id,
        timeline = excluded.timeline, floor = excluded.floor, since = excluded.since,
        instance = excluded.instance
    RETURNING l.epoch INTO lead.epoch;
    SELECT c.seq INTO lead.cursor FROM foldd.cursor c;
    lead.ingest_paused := EXISTS (SELECT FROM foldd.pauses p WHERE p.what = 'ingest');
    lead.folding_paused := EXISTS (SELECT FROM foldd.pauses p WHERE p.what = 'folding');
END
$$;
COMMENT ON FUNCTION foldd.lead(text, text, bigint) IS
    'Begins a term: ends all others, and answers where the log and the cursor stand. known_head is the highest head that this daemon has seen; lost says why numbering goes on 2^32 higher, if it does.';

CREATE OR REPLACE FUNCTION foldd.save_cursor(epoch bigint, token text, seq bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM foldd.enter(save_cursor.epoch, save_cursor.token);
    -- As in foldd.append(): a dump was restored under the running daemon.
    IF save_cursor.seq > foldd.head() THEN
        RAISE EXCEPTION 'the log has gone back behind %: the database was restored meanwhile',
            save_cursor.seq USING ERRCODE = 'FD001';
    END IF;
    UPDATE foldd.cursor c SET seq = save_cursor.seq WHERE c.seq < save_cursor.seq;
END
$$;
COMMENT ON FUNCTION foldd.save_cursor(bigint, text, bigint) IS 'For foldd: moves the cursor forward, never back.';

-- R5: a leader that hangs (SIGSTOP, a lost network) keeps its session and with it the leader's lock.
-- So a standby asks, and ends the sessions of a leader that does not answer in time.

CREATE OR REPLACE FUNCTION foldd.challenge(challenger text) RETURNS text
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM foldd.challenges c WHERE c.asked_at < clock_timestamp() - interval '1 day';
    INSERT INTO foldd.challenges (challenger, asked_at, answered)
    VALUES (challenge.challenger, clock_timestamp(), false)
    ON CONFLICT (challenger) DO UPDATE
    SET asked_at = excluded.asked_at, answered = excluded.answered;
    PERFORM pg_notify('foldd_challenge', '');
    RETURN (SELECT l.instance FROM foldd.leader l);
END
$$;
COMMENT ON FUNCTION foldd.challenge(text) IS
    'For a standby: asks the leading daemon whether it is alive. Answers who leads, as far as known.';

CREATE OR REPLACE FUNCTION foldd.challenge_answered(challenger text) RETURNS boolean
    LANGUAGE sql VOLATILE
AS $$
    SELECT coalesce(bool_or(c.answered), false) FROM foldd.challenges c
    WHERE c.challenger = challenge_answered.challenger
$$;
COMMENT ON FUNCTION foldd.challenge_answered(text) IS
    'For a standby: whether its last question was answered.';

CREATE OR REPLACE FUNCTION foldd.answer_challenges(epoch bigint, token text) RETURNS void
    LANGUAGE sql VOLATILE
AS $$
    UPDATE foldd.challenges c SET answered = true
    WHERE NOT c.answered
      AND (answer_challenges.epoch = 0
           OR EXISTS (SELECT FROM foldd.leader l WHERE l.epoch = answer_challenges.epoch
                      AND l.token = answer_challenges.token))
$$;
COMMENT ON FUNCTION foldd.answer_challenges(bigint, text) IS
    'For the leading daemon: answers all standbys, unless its term is over; epoch 0: its term is about to begin.';

CREATE OR REPLACE FUNCTION foldd.end_holders(lock integer) RETURNS bigint
    LANGUAGE sql VOLATILE
AS $$
    SELECT count(*) FILTER (WHERE pg_terminate_backend(k.pid)) FROM pg_locks k
    WHERE k.locktype = 'advisory' AND k.classid = 1718578276 AND k.objid = lock::oid
      AND k.objsubid = 2 AND k.granted AND k.pid <> pg_backend_pid()
      -- Whoever has the writers' lock for itself alone is foldd.repair(), or has just begun to lead.
      AND NOT EXISTS (
          SELECT FROM pg_locks w
          WHERE w.pid = k.pid AND w.locktype = 'advisory' AND w.classid = 1718578276
            AND w.objid = 1 AND w.objsubid = 2 AND w.granted AND w.mode = 'ExclusiveLock')
      AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;
COMMENT ON FUNCTION foldd.end_holders(integer) IS
    'Ends the sessions that hold the writers'' lock (1) or the leader''s (2) in this database; answers how many. Needs their role or pg_signal_backend.';

-- R28: after a restore that mixed two states.
CREATE OR REPLACE FUNCTION foldd.repair(OUT documents bigint, OUT head bigint)
    LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    IF NOT pg_try_advisory_xact_lock(1718578276, 2) THEN
        RAISE EXCEPTION 'a foldd leads this database: stop it first';
    END IF;
    PERFORM pg_advisory_xact_lock(1718578276, 1);
    SELECT coalesce(max(o.seq), 0) INTO repair.head FROM foldd.operations o;
    -- Rows are never removed (R13): they begin anew, and gen tells folds that are on their way.
    UPDATE foldd.documents d
    SET version = 0, revision = 0, deleted = true, created_at = NULL, updated_at = NULL, base = 0,
        gen = d.gen + 1, fields = '{}', outcomes = NULL
    WHERE d.version > repair.head;
    GET DIAGNOSTICS documents = ROW_COUNT;
    DELETE FROM foldd.outcomes t WHERE t.seq > repair.head;
    DELETE FROM foldd.skipped k WHERE k.seq > repair.head;
    INSERT INTO foldd.ledger (batch, head)
    SELECT max(l.batch) + 1, repair.head FROM foldd.ledger l;
    UPDATE foldd.leader l SET floor = greatest(l.floor, repair.head) + 4294967296;
    UPDATE foldd.cursor c SET seq = 0;
END
$$;
COMMENT ON FUNCTION foldd.repair() IS
    'For the schema''s owner, with no foldd running, when documents or cursor are ahead of the log (a restore that mixed two states): documents ahead begin anew, and the next foldd goes through the whole log again. Answers how many documents that were, and the log''s head.';
