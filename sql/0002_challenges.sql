-- SPDX-License-Identifier: MIT
-- 0002: how a standby finds out whether the leader is alive (foldd.challenge()).

CREATE TABLE foldd.challenges (
    challenger  text COLLATE "C" PRIMARY KEY,
    asked_at    timestamptz NOT NULL,
    answered    boolean NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE foldd.challenges IS
    'One row for each standby: its last question to the leading daemon. One that stays unanswered ends the leader''s sessions.';
COMMENT ON COLUMN foldd.challenges.challenger IS 'The standby: host, process id and socket.';
COMMENT ON COLUMN foldd.challenges.asked_at IS 'When it asked.';
COMMENT ON COLUMN foldd.challenges.answered IS 'Whether the leading daemon has answered.';
