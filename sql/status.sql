-- SPDX-License-Identifier: MIT
-- Where it stands, in SQL.

CREATE OR REPLACE VIEW foldd.status AS
SELECT foldd.head() AS head,
       c.seq AS cursor,
       foldd.head() - c.seq AS lag,
       (SELECT count(*) FROM foldd.parked) AS parked,
       l.epoch,
       l.instance AS leader,
       l.since AS leader_since
FROM foldd.cursor c LEFT JOIN foldd.leader l ON true;
COMMENT ON VIEW foldd.status IS
    'One row: the log''s head, the cursor as last saved, their distance, how many documents are parked, and which daemon leads since when.';
COMMENT ON COLUMN foldd.status.head IS 'seq of the last committed operation.';
COMMENT ON COLUMN foldd.status.cursor IS 'Everything up to here is settled; saved a moment behind the truth.';
COMMENT ON COLUMN foldd.status.lag IS 'head minus cursor.';
COMMENT ON COLUMN foldd.status.parked IS 'Rows of foldd.parked.';
COMMENT ON COLUMN foldd.status.epoch IS 'Number of the present term.';
COMMENT ON COLUMN foldd.status.leader IS 'The daemon that leads, or led last.';
COMMENT ON COLUMN foldd.status.leader_since IS 'When its term began.';
