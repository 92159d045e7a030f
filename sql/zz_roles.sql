-- SPDX-License-Identifier: MIT
-- Roles without login. They belong to the cluster: made if missing and permitted.

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['foldd_reader', 'foldd_writer'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            CONTINUE;
        END IF;
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE WARNING 'no right to create the role %: as a superuser, CREATE ROLE % NOLOGIN; then foldd --migrate grants it what it needs', name, name;
            WHEN duplicate_object OR unique_violation THEN
                NULL;
        END;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldd_reader') THEN
        GRANT USAGE ON SCHEMA foldd TO foldd_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA foldd TO foldd_reader;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'foldd_writer') THEN
        GRANT USAGE ON SCHEMA foldd TO foldd_writer;
    END IF;
END
$$;
