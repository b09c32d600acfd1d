"""Every way in and out: tables, platform exports, written labels."""
