"""Pages and figures from results; nothing is trained here."""
