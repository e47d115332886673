//! Each kind by small files.
