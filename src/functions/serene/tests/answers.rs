//! What answers say.
