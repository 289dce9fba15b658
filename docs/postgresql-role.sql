-- A role that appends to the ledger and reads it, and can neither change, remove nor truncate its
-- entries, nor drop or alter its table and guards. Run it as the owner of the ledger's tables, once
-- they are there (docs/operations.md), in the ledger's schema:
--
--     psql -v ON_ERROR_STOP=1 -d DATABASE -f postgresql-role.sql
--
-- and then, for each home:  CREATE ROLE name LOGIN PASSWORD '...' IN ROLE cloister_append;
-- It may be run again: what else was granted on the tables is taken back.

BEGIN;

DO $$
BEGIN
    BEGIN
        CREATE ROLE cloister_append NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;
    END;
    -- nobody but the owner makes tables or functions beside the ledger
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC, cloister_append', current_schema());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO cloister_append', current_schema());
END $$;

REVOKE ALL ON cloister_entries, cloister_leases FROM PUBLIC, cloister_append;
GRANT SELECT, INSERT ON cloister_entries TO cloister_append;
-- a lease is no entry: its row names who runs a release, and changes
GRANT SELECT, INSERT, UPDATE ON cloister_leases TO cloister_append;

COMMIT;
