//! What a guest boots into: the kernel's modules, busybox, and scripts that put the root together and run the command.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::guest::Wire;
use super::kernel::Kernel;
use crate::workspace::Workspace;

/// The address of a guest that is alone.
const ADDRESS: &str = "10.9.0.1";

/// What an image is made of.
pub(crate) struct Image<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) workspace: &'a Workspace,
    pub(crate) wire: Option<&'a Wire>,
    /// What a shell runs.
    pub(crate) command: &'a str,
}

impl Image<'_> {
    /// Writes the initial root, a cpio archive as the kernel reads it (Documentation/driver-api/early-userspace/buffer-format.rst).
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let tree = folder.join("tree");
        _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(tree.join("bin"))?;
        fs::create_dir_all(tree.join("modules"))?;
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new).into_iter().find(|path| path.is_file());
        fs::copy(busybox.context("busybox")?, tree.join("bin/busybox"))?;
        let mut order = String::new();
        for module in &self.kernel.modules {
            let name = module.file_name().and_then(|name| name.to_str()).context("a module's name")?;
            fs::copy(module, tree.join("modules").join(name))?;
            order += &format!("{name}\n");
        }
        fs::write(tree.join("modules/order"), order)?;
        for (name, text) in [("init", include_str!("init.sh")), ("setup", include_str!("setup.sh")), ("command", self.command)] {
            fs::write(tree.join(name), text)?;
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o755))?;
        }
        fs::write(tree.join("environment"), self.environment())?;
        pack(&tree, &folder.join("initrd"))?;
        fs::remove_dir_all(tree)?;
        Ok(())
    }

    /// What the scripts find in their environment.
    fn environment(&self) -> String {
        let (address, peer) = self.wire.map_or((ADDRESS, ""), |wire| (wire.address, wire.peer));
        let link = if self.wire.is_some() { "eth0" } else { "d0" };
        let root = self.workspace.root.display().to_string().replace('\'', r"'\''");
        format!("export RINGWAY_VM_LINK={link} RINGWAY_VM_ADDRESS={address} RINGWAY_VM_PEER={peer} RINGWAY_VM_FOLDER='{root}'\n")
    }
}

/// Puts a tree into an archive, all of it root's.
fn pack(tree: &Path, file: &Path) -> Result<()> {
    let mut names = Vec::new();
    list(tree, tree, &mut names)?;
    let mut cpio = Command::new("cpio");
    cpio.current_dir(tree).args(["--create", "--format", "newc", "--owner", "0:0", "--quiet"]);
    let mut cpio = cpio.stdin(Stdio::piped()).stdout(fs::File::create(file)?).spawn().context("cpio")?;
    let mut input = cpio.stdin.take().context("cpio's input")?;
    input.write_all(names.join("\n").as_bytes())?;
    drop(input);
    ensure!(cpio.wait()?.success(), "cpio failed");
    Ok(())
}

/// The paths beneath a folder, folders first, as from `top`.
fn list(top: &Path, folder: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        names.push(path.strip_prefix(top)?.to_str().context("a file's name")?.to_owned());
        if path.is_dir() {
            list(top, &path, names)?;
        }
    }
    Ok(())
}
