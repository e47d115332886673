//! `http`: sends a request to an upstream and turns the outcome into a Result.
//!
//! [`params`] reads a `with`, [`compose`] makes a request of it, [`attempt`] runs the attempt and [`send`] puts the
//! request on a connection. [`chosen`] is the endpoint that it is sent to. [`judge`] makes a Result of a response, [`lost`] makes one if there is no response, and
//! [`answer`] writes its message and details. [`foresee`] says what `check` needs to know. One attempt is one dispatch: the stack around it waits and tries again,
//! and the execution's observer counts and records it.

mod answer;
mod attempt;
mod chosen;
mod compose;
mod foresee;
mod hash_key;
mod judge;
mod lost;
mod params;
mod send;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use crate::language::outcome::Failure;
use crate::language::provider::{
    Answer, CallProvider, Contract, Dispatch, Foreseen, Prepared, Rising, WrittenCall,
};
use crate::language::value::Value;
use crate::proxy::settings::Paths;
use crate::source::Diagnostics;

pub(crate) use self::foresee::{RouteFacts, UpstreamFacts};

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::embedded(include_str!("http.v1.json")));

/// The http call provider of one route.
#[derive(Debug)]
pub(crate) struct HttpProvider {
    /// The indexes of the configuration's upstreams.
    upstreams: Arc<HashMap<Arc<str>, usize>>,
    /// The index of the route's own upstream.
    default: Option<usize>,
    paths: Paths,
    /// What the route says of its calls; `None` if the definition is checked without a route.
    facts: Option<RouteFacts>,
}

impl HttpProvider {
    /// A provider for these upstreams. A route may have one of its own.
    pub(crate) const fn new(
        upstreams: Arc<HashMap<Arc<str>, usize>>,
        default: Option<usize>,
        paths: Paths,
    ) -> Self {
        Self { upstreams, default, paths, facts: None }
    }

    /// The same for a route that says this of its calls.
    pub(crate) fn on(self, facts: RouteFacts) -> Self {
        Self { facts: Some(facts), ..self }
    }
}

impl CallProvider for HttpProvider {
    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, with: &Value) -> Result<Prepared, Failure> {
        Ok(Arc::new(params::read(with, &self.upstreams, self.default, self.paths)?))
    }

    fn check(&self, call: WrittenCall<'_>, found: &mut Diagnostics) {
        foresee::check(call, found);
    }

    fn rising(&self, call: Foreseen<'_>) -> Rising<'_> {
        self.foreseen(&CONTRACT, call)
    }

    fn members(&self) -> &'static [(&'static str, &'static str)] {
        foresee::MEMBERS
    }

    fn call<'a>(
        &'a self,
        dispatch: Dispatch<'a>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        attempt::run(dispatch)
    }
}
