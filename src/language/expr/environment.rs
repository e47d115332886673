//! The one CEL environment: core CEL, the extensions that MWL recommends, and our own functions. It is built
//! once, and every program shares it.

use std::sync::{Arc, OnceLock};

use cel::{DeclarationError, Env, extensions};

use super::functions;

/// The environment, in the form that the CEL crate's contexts take.
pub(super) fn shared() -> &'static Arc<Env> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    ENV.get_or_init(|| {
        let mut env = Env::stdlib();
        #[expect(
            clippy::expect_used,
            reason = "the declarations are constants: a clash would fail every test"
        )]
        declare(&mut env).expect("the libraries do not clash");
        Arc::new(env)
    })
}

/// Declares everything that core CEL does not have.
pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::math)?;
    env.add_extension(extensions::encoders)?;
    env.add_extension(extensions::lists)?;
    functions::declare(env)
}
