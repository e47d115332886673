//! The binding roots, and which of them a site may read.

use std::fmt;

/// The binding roots ("Evaluation context: the binding roots").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// The frame's variables.
    Vars,
    /// The execution: identity, timing, platform.
    Execution,
    /// The current frame.
    Frame,
    /// The Step that runs.
    Step,
    /// The current Call.
    Call,
    /// A flow target's completed frame, in the call's arms.
    Flow,
    /// A provider target's completed execution, in the call's arms.
    Provider,
    /// The data handed to the current `Match`.
    Match,
    /// The input and result at the current middleware position.
    Middleware,
    /// The failure that is being handled.
    Failure,
    /// The upstream's response, in a route's `classify` rule. Not a root of MWL.
    Response,
}

/// A set of roots: what a site may read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Roots(u16);

impl Root {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Self; 11] = [
        Self::Vars,
        Self::Execution,
        Self::Frame,
        Self::Step,
        Self::Call,
        Self::Flow,
        Self::Provider,
        Self::Match,
        Self::Middleware,
        Self::Failure,
        Self::Response,
    ];

    /// The name by which an expression reaches it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vars => "vars",
            Self::Execution => "execution",
            Self::Frame => "frame",
            Self::Step => "step",
            Self::Call => "call",
            Self::Flow => "flow",
            Self::Provider => "provider",
            Self::Match => "match",
            Self::Middleware => "middleware",
            Self::Failure => "failure",
            Self::Response => "response",
        }
    }

    /// The root of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.name() == name)
    }
}

impl Roots {
    /// No root at all.
    pub const NONE: Self = Self(0);

    /// The set of these roots.
    #[expect(clippy::indexing_slicing, reason = "`i` is below the length")]
    pub const fn of(roots: &[Root]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < roots.len() {
            bits |= 1 << roots[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// Whether `root` is one of them.
    pub const fn contains(self, root: Root) -> bool {
        self.0 & (1 << root as u16) != 0
    }

    /// The roots of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The roots of the set, in the order of [`Root::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Root> {
        Root::ALL.into_iter().filter(move |root| self.contains(*root))
    }
}

/// Lists the names as a message does: `vars`, `execution` and `step`.
impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|root| format!("`{}`", root.name())).collect();
        match names.as_slice() {
            [] => f.write_str("none"),
            [one] => f.write_str(one),
            [most @ .., last] => write!(f, "{} and {last}", most.join(", ")),
        }
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_root_is_found_by_its_name_and_is_a_bit_of_its_own() {
        for root in Root::ALL {
            assert_eq!(Root::named(root.name()), Some(root));
            assert_eq!(Roots::of(&[root]).iter().collect::<Vec<_>>(), [root]);
        }
        assert_eq!(Root::named("variables"), None);
    }

    #[test]
    fn a_set_lists_its_names() {
        let roots = Roots::of(&[Root::Step, Root::Vars]).union(Roots::of(&[Root::Call]));
        assert_eq!(roots.to_string(), "`vars`, `step` and `call`");
        assert_eq!(Roots::NONE.to_string(), "none");
        assert_eq!(Roots::of(&[Root::Vars]).to_string(), "`vars`");
        assert_eq!(format!("{roots:?}"), "{Vars, Step, Call}");
    }
}
