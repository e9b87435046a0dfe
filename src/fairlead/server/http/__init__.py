"""HTTP itself: connections, requests, bodies, deadlines and problem documents."""
