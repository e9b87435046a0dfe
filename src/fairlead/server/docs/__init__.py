"""What the server says of its API: OpenAPI, the pages at /docs, the reference and the TypeScript types."""
