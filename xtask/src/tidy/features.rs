//! What cargo unites: features that are for tests are not in what a plain build of the workspace makes.

use anyhow::{Result, ensure};

use crate::workspace::{Workspace, cargo};

/// Features of `ringway-stack` for tests alone.
const FOR_TESTS: [&str; 3] = ["fuzzing", "marks", "mutants"];

/// Adds a finding for each feature that some package asks for by default: in one cargo call, libvma.so could not be built beside that one.
///
/// # Errors
/// cargo does not say.
pub(super) fn united(workspace: &Workspace, findings: &mut Vec<String>) -> Result<()> {
    let tree = ["tree", "--workspace", "--edges", "features,no-dev", "--invert", "ringway-stack"];
    let output = cargo().current_dir(&workspace.root).args(tree).output()?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    findings.extend(asked_for(&String::from_utf8_lossy(&output.stdout)));
    Ok(())
}

fn asked_for(tree: &str) -> impl Iterator<Item = String> {
    let asks = |feature: &&str| tree.contains(&format!("ringway-stack feature \"{feature}\""));
    FOR_TESTS
        .into_iter()
        .filter(asks)
        .map(|feature| format!("Cargo.toml:1: a plain build has ringway-stack's feature `{feature}`, which is for tests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_asked_for_is_found() {
        let tree = "ringway-stack v0.1.0 (stack)\n├── ringway-stack feature \"default\"\n└── ringway-stack feature \"marks\"\n    └── ringway-sim\n";
        assert_eq!(asked_for(tree).count(), 1);
        assert_eq!(asked_for("ringway-stack v0.1.0\n└── ringway-stack feature \"default\"\n").count(), 0);
    }
}
