//! Provider URIs: `mwl:<type>/<namespace>/<name…>`.
/// A valid `mwl` URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderUri {
    text: std::sync::Arc<str>,
}
impl ProviderUri {
    pub fn parse(text: &str) -> Result<Self, String> {
        unimplemented!()
    }
    pub fn as_str(&self) -> &str {
        &self.text
    }
    pub fn namespace(&self) -> &str {
        unimplemented!()
    }
    pub fn is_call(&self) -> bool {
        unimplemented!()
    }
}
