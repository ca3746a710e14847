use super::*;

#[test]
fn every_built_in_scenario_gives_setups() {
    for name in Scenario::names() {
        let scenario = Scenario::named(name).unwrap_or_else(|error| panic!("{error}"));
        for seed in 1..=5 {
            let setup = scenario.setup(seed, dcqcn::Parameters::DC55).unwrap_or_else(|error| panic!("{error}"));
            assert!(!setup.jobs.is_empty(), "{name}");
        }
    }
}
