-- The tables of a fleet of tunerd, in a schema of their own; PostgreSQL 15 or newer, encoding UTF8.
-- A daemon whose role may create a schema makes them by itself. Where it may not, the owner of the
-- database runs this text (tunerd --fleet-schema | psql ...), then, for the daemons' role:
--     GRANT USAGE ON SCHEMA tunerd TO the_role;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tunerd TO the_role;
--     GRANT USAGE ON ALL SEQUENCES IN SCHEMA tunerd TO the_role;
-- It can be run again: what is there stays as it is.

SELECT pg_advisory_xact_lock(hashtextextended('tunerd schema', 0));
CREATE SCHEMA IF NOT EXISTS tunerd;

-- One row. engine tells this set of rows from that of another server.
CREATE TABLE IF NOT EXISTS tunerd.version (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  major integer NOT NULL,
  engine uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO tunerd.version (major) VALUES (1) ON CONFLICT DO NOTHING;

-- One row: the number of the last change. Who raises it holds the row until the commit, so numbers
-- are in the order of commits (those of a sequence are not) and a reader that has seen one has seen
-- all below it.
CREATE TABLE IF NOT EXISTS tunerd.head (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  seq bigint NOT NULL) WITH (fillfactor = 20);
INSERT INTO tunerd.head (seq) VALUES (0) ON CONFLICT DO NOTHING;

-- What was measured. (rank, line) is the precedence of rows of one id; hash is that of the line.
CREATE TABLE IF NOT EXISTS tunerd.sample (
  id bytea PRIMARY KEY CHECK (octet_length(id) = 64),
  rank bigint NOT NULL,
  hash bigint NOT NULL,
  line text NOT NULL CHECK (octet_length(line) <= 65536),
  node text NOT NULL CHECK (octet_length(node) <= 32),
  seq bigint NOT NULL UNIQUE);

-- The rows by the first byte of their id: how many, and their hashes, exclusive or.
CREATE TABLE IF NOT EXISTS tunerd.bucket (
  bucket integer PRIMARY KEY CHECK (bucket BETWEEN 0 AND 255),
  rows bigint NOT NULL DEFAULT 0,
  digest bigint NOT NULL DEFAULT 0) WITH (fillfactor = 40);
INSERT INTO tunerd.bucket (bucket) SELECT generate_series(0, 255) ON CONFLICT DO NOTHING;

-- Batches of candidates of sweeps. state: 0 waits, 1 leased, 2 done, 3 failed.
CREATE TABLE IF NOT EXISTS tunerd.task (
  id bigserial PRIMARY KEY,
  asker text NOT NULL,
  target text NOT NULL,
  payload text NOT NULL CHECK (octet_length(payload) <= 262144),
  state smallint NOT NULL DEFAULT 0,
  owner text,
  lease_until timestamptz,
  tries integer NOT NULL DEFAULT 0,
  done_seq bigint NOT NULL DEFAULT 0,
  made timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS task_open ON tunerd.task (target, id) WHERE state < 2;

-- Who is there. Written every few seconds and worth nothing after a crash: not logged.
CREATE UNLOGGED TABLE IF NOT EXISTS tunerd.node (
  node text PRIMARY KEY,
  session text NOT NULL,
  host text NOT NULL CHECK (octet_length(host) <= 255),
  targets text NOT NULL CHECK (octet_length(targets) <= 16384),
  position bigint NOT NULL,
  seen timestamptz NOT NULL) WITH (fillfactor = 50);

-- Keeps bucket right whoever changes sample, and however.
CREATE OR REPLACE FUNCTION tunerd.count_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    UPDATE tunerd.bucket SET rows = 0, digest = 0;
  ELSIF TG_OP = 'INSERT' THEN
    UPDATE tunerd.bucket b SET rows = b.rows + c.rows, digest = b.digest # c.digest
      FROM (SELECT get_byte(id, 0) AS bucket, count(*) AS rows, bit_xor(hash) AS digest
              FROM fresh GROUP BY 1 ORDER BY 1) c WHERE b.bucket = c.bucket;
  ELSIF TG_OP = 'DELETE' THEN
    UPDATE tunerd.bucket b SET rows = b.rows - c.rows, digest = b.digest # c.digest
      FROM (SELECT get_byte(id, 0) AS bucket, count(*) AS rows, bit_xor(hash) AS digest
              FROM stale GROUP BY 1 ORDER BY 1) c WHERE b.bucket = c.bucket;
  ELSE
    UPDATE tunerd.bucket b SET rows = b.rows + c.rows, digest = b.digest # c.digest
      FROM (SELECT bucket, sum(rows)::bigint AS rows, bit_xor(digest) AS digest FROM (
              SELECT get_byte(id, 0) AS bucket, 1 AS rows, hash AS digest FROM fresh
              UNION ALL SELECT get_byte(id, 0), -1, hash FROM stale) u
            GROUP BY 1 ORDER BY 1) c WHERE b.bucket = c.bucket;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER count_inserted AFTER INSERT ON tunerd.sample
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tunerd.count_rows();
CREATE OR REPLACE TRIGGER count_updated AFTER UPDATE ON tunerd.sample
  REFERENCING NEW TABLE AS fresh OLD TABLE AS stale
  FOR EACH STATEMENT EXECUTE FUNCTION tunerd.count_rows();
CREATE OR REPLACE TRIGGER count_deleted AFTER DELETE ON tunerd.sample
  REFERENCING OLD TABLE AS stale FOR EACH STATEMENT EXECUTE FUNCTION tunerd.count_rows();
CREATE OR REPLACE TRIGGER count_truncated AFTER TRUNCATE ON tunerd.sample
  FOR EACH STATEMENT EXECUTE FUNCTION tunerd.count_rows();

-- A batch of rows; no id twice. One notification, with the number that is reached.
CREATE OR REPLACE FUNCTION tunerd.put(
  ids bytea[], ranks bigint[], hashes bigint[], lines text[], by text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  base bigint;
BEGIN
  UPDATE tunerd.head SET seq = seq + cardinality(ids) RETURNING seq - cardinality(ids) INTO base;
  INSERT INTO tunerd.sample AS s (id, rank, hash, line, node, seq)
    SELECT t.id, t.rank, t.hash, t.line, by, base + t.n
      FROM unnest(ids, ranks, hashes, lines) WITH ORDINALITY AS t (id, rank, hash, line, n)
    ON CONFLICT (id) DO UPDATE SET rank = excluded.rank, hash = excluded.hash,
      line = excluded.line, node = excluded.node, seq = excluded.seq
      WHERE excluded.rank > s.rank OR excluded.rank = s.rank
        AND excluded.line COLLATE "C" > s.line COLLATE "C";
  PERFORM pg_notify('tunerd', 'rows ' || base + cardinality(ids));
  RETURN base + cardinality(ids);
END $$;

-- The end of a lease. Its rows were put before, so they are below the head of now.
CREATE OR REPLACE FUNCTION tunerd.complete(wanted bigint, by text, has_failed boolean)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  of text;
BEGIN
  UPDATE tunerd.task SET state = CASE WHEN has_failed THEN 3 ELSE 2 END,
      done_seq = (SELECT seq FROM tunerd.head)
    WHERE id = wanted AND owner = by AND state = 1 RETURNING asker INTO of;
  IF of IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM pg_notify('tunerd', 'end ' || of);
  RETURN 1;
END $$;

CREATE OR REPLACE FUNCTION tunerd.offer(by text, target text, payload text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  made bigint;
BEGIN
  INSERT INTO tunerd.task (asker, target, payload) VALUES (by, offer.target, offer.payload)
    RETURNING id INTO made;
  PERFORM pg_notify('tunerd', 'task');
  RETURN made;
END $$;
