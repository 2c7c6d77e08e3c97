-- The passwords of credentials.json.

ALTER ROLE postgres PASSWORD :'superuser';

ALTER ROLE thence_store PASSWORD :'store';

ALTER ROLE thence_warehouse PASSWORD :'warehouse';

