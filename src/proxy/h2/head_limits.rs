//! The limits of a message's head and trailers.
//!
//! They apply to the message, and so are the same in both protocols. They do not depend on how HTTP/2 sends it: in how many
//! pieces a cookie comes, or that HTTP/2 adds 32 bytes to the size of each field.
//!
//! What is read of a header block has another limit ([`HeadLimits::list_size`]), which a message within ours never
//! exceeds: its fields are not even kept beyond it.

use http::HeaderMap;

use crate::proxy::settings::HeadLimits;

/// What a field counts beside its name and value: `: ` and the end of the line.
const LINE: usize = 4;
/// A header block is read up to this many times the size,
const TIMES: usize = 3;
/// plus this for each field, which HTTP/2 counts (RFC 9113 §10.5.1),
const EACH_FIELD: usize = 32;
/// plus this for what repeats the table of fields.
const TABLE: usize = 8 * 1024;

/// Which limit a head exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverLimit {
    /// The number of fields.
    #[error("there are more than {0} fields (limits.headers)")]
    Fields(usize),
    /// The size of the fields.
    #[error("the fields are over {0} bytes (limits.headSize)")]
    Size(usize),
}

impl HeadLimits {
    /// How large a list of fields is read. It is sent as `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub(crate) fn list_size(self) -> u32 {
        let fields = self.fields.saturating_mul(EACH_FIELD).saturating_add(TABLE);
        let size = self.size.saturating_mul(TIMES).saturating_add(fields);
        u32::try_from(size).unwrap_or(u32::MAX)
    }

    /// Checks the `fields` of a head that has `more` bytes beside them.
    pub(crate) fn check(self, fields: &HeaderMap, more: usize) -> Result<(), OverLimit> {
        if fields.len() > self.fields {
            return Err(OverLimit::Fields(self.fields));
        }
        let sizes = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE);
        if sizes.sum::<usize>().saturating_add(more) > self.size {
            return Err(OverLimit::Size(self.size));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_within_its_bounds_or_not() {
        let bounds = HeadLimits { size: 22, fields: 2 };
        let mut fields = HeaderMap::new();
        fields.append("a", "12345".parse().unwrap());
        fields.append("a", "12345".parse().unwrap());
        assert_eq!(bounds.check(&fields, 2), Ok(()));
        assert_eq!(bounds.check(&fields, 3), Err(OverLimit::Size(22)));
        fields.append("b", "".parse().unwrap());
        assert_eq!(bounds.check(&fields, 0), Err(OverLimit::Fields(2)));
        assert_eq!(HeadLimits { size: usize::MAX, fields: 0 }.list_size(), u32::MAX);
    }
}
