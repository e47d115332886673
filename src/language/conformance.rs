//! What this implementation claims to be (MWL, "Conformance profiles").

/// The profile of every requirement but those of an expression language ("Core").
pub const CORE: &str = "https://mwl.dev/v0.1/conformance/core";

/// The profile of CEL and the MWL functions ("The expression profiles").
pub const CEL: &str = "https://mwl.dev/v0.1/conformance/expressions/cel";

/// The conformance claim: the profile URIs, in the specification's order. They are compared character for
/// character and never parsed ("Profile URIs"); each extension profile stands beside the one it extends
/// ("Conformance claims").
pub const CLAIM: [&str; 7] = [
    CORE,
    CEL,
    "https://mwl.dev/v0.1/conformance/expressions/cel/strings",
    "https://mwl.dev/v0.1/conformance/expressions/cel/lists",
    "https://mwl.dev/v0.1/conformance/expressions/cel/sets",
    "https://mwl.dev/v0.1/conformance/expressions/cel/encoders",
    "https://mwl.dev/v0.1/conformance/expressions/cel/math",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in "The profiles", and no URI that only we know.
    #[test]
    fn the_claim_is_the_specifications_seven_profiles() {
        let minted = "https://mwl.dev/v0.1/conformance/";
        let names = CLAIM.map(|uri| uri.strip_prefix(minted).unwrap());
        assert_eq!(
            names,
            [
                "core",
                "expressions/cel",
                "expressions/cel/strings",
                "expressions/cel/lists",
                "expressions/cel/sets",
                "expressions/cel/encoders",
                "expressions/cel/math",
            ]
        );
    }
}
