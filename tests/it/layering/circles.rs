//! Circles of files, each of which names the next.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Files, Place, What};

/// The circles of `files`, tests left out, largest first. Two files that name each other are one.
pub(crate) fn circles(files: &Files) -> Vec<Vec<Place>> {
    let graph = files.0.iter().filter(|(_, file)| !file.test).map(|(place, file)| {
        let named = file.names.iter().filter(|named| !named.test);
        let others = named.filter_map(|named| match &named.what {
            What::Here(what) => files.holder(what).filter(|other| *other != place),
            What::Elsewhere(_) => None,
        });
        (place, others.filter(|other| !files.0[*other].test).collect())
    });
    let mut search = Search { graph: graph.collect(), ..Search::default() };
    for place in files.0.keys() {
        search.visit(place);
    }
    search.found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    search.found
}

/// Tarjan's: a depth-first walk that keeps what it is amidst of.
#[derive(Default)]
struct Search<'a> {
    graph: BTreeMap<&'a Place, BTreeSet<&'a Place>>,
    /// When each was first seen, and the earliest that it leads back to.
    seen: BTreeMap<&'a Place, (usize, usize)>,
    amidst: Vec<&'a Place>,
    found: Vec<Vec<Place>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, place: &'a Place) {
        let Some(others) = self.graph.get(place).cloned() else { return };
        if self.seen.contains_key(place) {
            return;
        }
        let number = self.seen.len();
        self.seen.insert(place, (number, number));
        self.amidst.push(place);
        for other in others {
            self.visit(other);
            if self.amidst.contains(&other) {
                let back = self.seen[other].1;
                self.seen.entry(place).and_modify(|(_, least)| *least = back.min(*least));
            }
        }
        if self.seen[place].1 == number {
            let start = self.amidst.iter().position(|other| *other == place).unwrap();
            let circle: Vec<Place> = self.amidst.split_off(start).into_iter().cloned().collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}
