//! The profiles that this implementation claims to conform to (MWL, "Conformance profiles").

/// The profile of all requirements except those on an expression language ("Core").
pub const CORE: &str = "https://mwl.dev/v0.1/conformance/core";

/// The profile of CEL and the MWL functions ("The expression profiles").
pub const CEL: &str = "https://mwl.dev/v0.1/conformance/expressions/cel";

/// The conformance claim: the profile URIs, in the specification's order. They are compared character by
/// character and never parsed ("Profile URIs"). A claim lists an extension profile together with the one that
/// it extends ("Conformance claims").
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

    /// The claim is the table in "The profiles", without a URI of our own.
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
