"""Which parent each row gets: shares of relationships from joint tables, then matched rows."""
