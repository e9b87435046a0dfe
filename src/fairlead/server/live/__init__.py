"""What changes while somebody looks: events, counts, histories and long polls."""
