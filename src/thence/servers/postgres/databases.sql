-- A new cluster: two databases, each with a role of its own that cannot enter the other.

CREATE ROLE thence_store LOGIN;

CREATE ROLE thence_warehouse LOGIN;

CREATE DATABASE store OWNER thence_store;

CREATE DATABASE warehouse OWNER thence_warehouse;

REVOKE CONNECT, TEMPORARY ON DATABASE store, warehouse, postgres, template1 FROM PUBLIC;

