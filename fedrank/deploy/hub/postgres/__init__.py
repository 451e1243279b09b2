"""Several hub processes on one PostgreSQL database: all take reports, one of them closes and applies rounds."""
