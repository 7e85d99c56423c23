//! `cellar token`: who may use `cellar serve`.

use std::time::Duration;

use cellar_server::{NewToken, Scope, Token, TokenFile};

use crate::{
    args::{Folders, TokenArguments, TokenCommand},
    output,
    report::{CliError, EXIT_COMPLETE},
    table::{date_text, table},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Makes, lists or revokes tokens.
///
/// # Errors
/// The configuration is not valid, there is no such tenant or token, or the file cannot be changed.
pub(crate) fn token(folders: &Folders, arguments: TokenArguments) -> Result<u8, CliError> {
    let (file, tenants) = TokenFile::of(&folders.into(), arguments.config.as_deref())?;
    match arguments.command {
        TokenCommand::New { tenant, name, scopes, days } => {
            let tenant = match (tenant, tenants.as_slice()) {
                (Some(tenant), known) if known.contains(&tenant) => tenant,
                (None, [only]) => only.clone(),
                (given, known) => {
                    let message = match given {
                        Some(given) => format!("no tenant `{given}` is configured"),
                        None => "there are several tenants".to_owned(),
                    };
                    return Err(CliError::usage(message, format!("say --tenant with one of {}", known.join(", "))));
                }
            };
            let scopes =
                if scopes.is_empty() { vec![Scope::Run] } else { scopes.into_iter().map(Scope::from).collect() };
            let lifetime = days.map(|days| DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX)));
            let text = file.add(NewToken { tenant, name, scopes, lifetime })?;
            output::print(&format!("{text}\n"))?;
        }
        TokenCommand::List { json } => {
            let tokens = file.list()?;
            match json {
                true => output::print_json(&tokens.iter().map(listed).collect::<Vec<_>>())?,
                false => output::print(&table_of(&tokens))?,
            }
        }
        TokenCommand::Revoke { id } => file.revoke(&id)?,
    }
    Ok(EXIT_COMPLETE)
}

/// A token without its digest.
fn listed(token: &Token) -> serde_json::Value {
    serde_json::json!({
        "id": token.id,
        "tenant": token.tenant,
        "name": token.name,
        "last4": token.last4,
        "scopes": token.scopes,
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
        "isExpired": token.is_expired(),
    })
}

fn table_of(tokens: &[Token]) -> String {
    let row = |token: &Token| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.name()).collect();
        let until = match token.expires_at {
            _ if token.is_expired() => "expired".to_owned(),
            Some(end) => date_text(end),
            None => "never".to_owned(),
        };
        let Token { id, tenant, name, last4, .. } = token;
        [id.clone(), format!("…{last4}"), tenant.clone(), name.clone(), scopes.join(","), until]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    table(["ID", "ENDS IN", "TENANT", "NAME", "SCOPES", "EXPIRES"], &rows, "no tokens; `cellar token new` makes one")
}
