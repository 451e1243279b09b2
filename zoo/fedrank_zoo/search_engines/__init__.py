"""Search engines that an owner has already: OpenSearch and Elasticsearch, PostgreSQL."""
