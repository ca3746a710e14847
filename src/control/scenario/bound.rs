//! How fast a job can be at best.

use std::collections::BTreeMap;

use crate::backend::sim::Setup;
use crate::dataplane::Nanos;

/// By class: the mean over its jobs of what each needs at least, in ns.
pub fn bounds_ns(setup: &Setup) -> BTreeMap<String, Nanos> {
    let _ = setup;
    BTreeMap::new()
}
