//! `/recordings`: the exchanges that `run --record DIR` keeps, and sending one of them again.

use http::{Response, StatusCode};

use super::pages::Names;
use super::{AdminServer, Body, json, text, unknown};
use crate::proxy::message::query;
use crate::replay::{Destination, replay};
use crate::telemetry::recordings::{ReadError, Recording, Recordings, Selection};

/// How many requests may be sent again at once.
pub(super) const MAX_REPLAYS: usize = 4;
/// How many recordings a list has at most.
const MOST: usize = 1000;

/// An answer that says why there is no other.
type Refused = Box<Response<Body>>;

impl AdminServer {
    pub(super) fn recordings(&self, query: &str) -> Response<Body> {
        let listed = self.kept().and_then(|recordings| {
            let selection =
                selection(query).map_err(|why| Box::new(text(StatusCode::BAD_REQUEST, why)))?;
            Ok(json(StatusCode::OK, &recordings.to_json(&selection)))
        });
        listed.unwrap_or_else(|refused| *refused)
    }

    pub(super) fn recording(&self, names: &Names<'_>) -> Response<Body> {
        self.named(names)
            .map_or_else(|refused| *refused, |recording| json(StatusCode::OK, &json!(recording)))
    }

    /// Sends the request of a recording again, through the proxy's own listener.
    pub(super) async fn replay(&self, names: &Names<'_>) -> Response<Body> {
        let (recording, to) = match self.named(names).and_then(|one| Ok((one, self.listener()?))) {
            Ok(found) => found,
            Err(refused) => return *refused,
        };
        let Ok(_one) = self.replays.try_acquire() else {
            let why =
                format!("{MAX_REPLAYS} requests are being sent again; wait for one of them\n");
            return text(StatusCode::SERVICE_UNAVAILABLE, why);
        };
        match replay(&recording, &to, &[]).await {
            Ok(replayed) => json(StatusCode::OK, &replayed.to_json(&recording)),
            Err(error) if error.is_obstacle() => text(StatusCode::CONFLICT, format!("{error}\n")),
            Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
        }
    }

    fn kept(&self) -> Result<&Recordings, Refused> {
        let none = "nothing is recorded: start with `mwl-proxy run --record DIR`\n";
        self.backend
            .recordings()
            .ok_or_else(|| Box::new(text(StatusCode::NOT_FOUND, none.to_owned())))
    }

    fn named(&self, names: &Names<'_>) -> Result<Recording, Refused> {
        let id = names.first().map(AsRef::as_ref).unwrap_or_default();
        self.kept()?.read(id).map_err(|error| {
            let status = match error {
                ReadError::Unknown(_) => StatusCode::NOT_FOUND,
                ReadError::Broken(..) => StatusCode::CONFLICT,
            };
            Box::new(text(status, format!("{error}\n")))
        })
    }

    /// Where the proxy serves requests in clear text.
    fn listener(&self) -> Result<Destination, Refused> {
        let address = self.kept()?.listener();
        let to = address.and_then(|address| Destination::recorder(&format!("http://{address}")));
        to.ok_or_else(|| {
            let why = "no listener takes requests in clear text; send it with `mwl-proxy replay FILE --to URL`\n";
            Box::new(text(StatusCode::CONFLICT, why.to_owned()))
        })
    }
}

/// Parses the query of the list. The error names what was found and what is expected.
fn selection(query: &str) -> Result<Selection, String> {
    let mut selection = Selection::default();
    for (name, value) in query::pairs(query) {
        match &*name {
            "execution" => selection.execution = Some(value.into_owned()),
            "request" => selection.request = Some(value.into_owned()),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                let wrong = || format!("`limit` is `{value}`; wanted: a number from 1 to {MOST}\n");
                selection.limit = Some(limit.ok_or_else(wrong)?);
            }
            _ => return Err(unknown(&name, "limit, execution, request")),
        }
    }
    Ok(selection)
}
