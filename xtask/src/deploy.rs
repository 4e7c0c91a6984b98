//! `cargo xtask install` and `uninstall`: libraries, headers, rules, manual pages, completions, pkg-config files, commands and examples, under a
//! prefix. One list says what that is.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, run_command};

/// Where to.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// Where it will be used from.
    #[arg(long)]
    prefix: PathBuf,
    /// Puts it below this directory, as packages are made.
    #[arg(long, default_value = "/")]
    destdir: PathBuf,
    /// Where the libraries go, below the prefix (lib64, lib/x86_64-linux-gnu); default: lib.
    #[arg(long, default_value = "lib")]
    libdir: PathBuf,
    /// Where libvma.conf goes; default: PREFIX/etc, or /etc for the prefix /usr.
    #[arg(long)]
    sysconfdir: Option<PathBuf>,
    /// Leaves symbols and line numbers in.
    #[arg(long)]
    no_strip: bool,
}

/// Where the examples are, and in which languages.
const EXAMPLES: [(&str, &[&str]); 2] = [("ffi/vma/examples", &["c", "rs"]), ("ffi/rsocket/examples", &["c"])];

/// What those in Rust share: the header, in Rust.
pub(crate) const BINDINGS: &str = "vma_extra/mod.rs";

/// Where that is, in the checkout.
const BINDINGS_SOURCE: &str = "ffi/vma/examples/vma_extra/mod.rs";

/// The version of libvma whose programs run with this library: what the library's file and pkg-config say.
const API: &str = "9.8.70";

/// Builds, and installs.
///
/// # Errors
/// Something does not build, or cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    workspace.build_installed()?;
    install(&workspace, &workspace.target.join("release"), options)?;
    println!("installed under {}", options.destdir.join(below(&options.prefix)).display());
    Ok(())
}

/// Removes what [`run`] with the same options has installed, and folders that are empty then. Rules that somebody has changed stay.
///
/// # Errors
/// Something cannot be removed.
pub(crate) fn remove(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut removed = 0;
    for file in files(&workspace, options)? {
        let path = options.place(&file.to);
        let is_rules = file.to == options.rules();
        if is_rules && fs::read(&path).ok() != fs::read(workspace.root.join(RULES)).ok() && path.exists() {
            println!("{} is left: it was changed", path.display());
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        }
        // Folders of our own: others are not empty, or belong to the system.
        for folder in path.ancestors().skip(1).take_while(|folder| OWN_FOLDERS.iter().any(|own| folder.ends_with(own))) {
            let _ = fs::remove_dir(folder);
        }
    }
    println!("removed {removed} files under {}", options.destdir.join(below(&options.prefix)).display());
    Ok(())
}

impl Options {
    /// For a test: everything below `prefix`, which is where it will be used from as well.
    pub(crate) fn at(prefix: &Path, destdir: &Path) -> Self {
        Self { prefix: prefix.to_owned(), destdir: destdir.to_owned(), libdir: "lib".into(), sysconfdir: None, no_strip: false }
    }

    pub(crate) fn with_libdir(self, libdir: &str) -> Self {
        Self { libdir: libdir.into(), ..self }
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.destdir.join(below(path))
    }

    /// Where libvma.conf is read.
    fn rules(&self) -> PathBuf {
        let etc = match &self.sysconfdir {
            Some(directory) => directory.clone(),
            None if self.prefix == Path::new("/usr") => PathBuf::from("/etc"),
            None => self.prefix.join("etc"),
        };
        etc.join("libvma.conf")
    }
}

/// The rules, in the checkout.
const RULES: &str = "ffi/vma/libvma.conf";

/// The broker's unit for systemd, in the checkout.
const UNIT: &str = "ffi/cli/systemd/ringway-broker.service";

/// Folders that nobody else puts something into.
const OWN_FOLDERS: [&str; 8] = [
    "doc/ringway",
    "doc/ringway/examples",
    "doc/ringway/examples/vma_extra",
    "doc/ringway/examples/systemd",
    "include/mellanox",
    "include/ringway",
    "include/ringway/rdma",
    RSPRELOAD_FOLDER,
];

/// The folder of librspreload.so, below that of the libraries. (librdmacm's packages have one of that name in `rsocket`, and so may be installed beside.)
const RSPRELOAD_FOLDER: &str = "ringway";

/// Where the shells look for completions, below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/ringway"),
    ("zsh", "share/zsh/site-functions/_ringway"),
    ("fish", "share/fish/vendor_completions.d/ringway.fish"),
];

/// The commands that have a manual page of their own.
const MANUALS: [&str; 8] = ["run", "stats", "sockets", "capture", "doctor", "broker", "route", "sim"];

/// Something to install.
struct File {
    /// Its path, where it is used.
    to: PathBuf,
    content: Content,
}

/// What is in it.
enum Content {
    /// A file of the checkout.
    Source(PathBuf),
    /// A program or a library.
    Program(&'static str),
    /// A symbolic link.
    Link(String),
    /// What `ringway` prints if it is called so.
    Printed(Vec<&'static str>),
    Text(String),
}

/// Everything that is installed: what [`install`] puts there and [`remove`] removes.
fn files(workspace: &Workspace, options: &Options) -> Result<Vec<File>> {
    ensure!(options.prefix.is_absolute(), "--prefix is an absolute path");
    ensure!(options.libdir.is_relative(), "--libdir is relative to the prefix");
    let mut files = Vec::new();
    let mut add = |to: &Path, content: Content| files.push(File { to: options.prefix.join(to), content });
    let major = API.split('.').next().unwrap_or(API);
    let (full, short) = (format!("libvma.so.{API}"), format!("libvma.so.{major}"));
    add(&options.libdir.join(&full), Content::Program("libvma.so"));
    // The names by which it is looked for: by loaders, and by people and compilers.
    add(&options.libdir.join(&short), Content::Link(full));
    add(&options.libdir.join("libvma.so"), Content::Link(short));
    add(&options.libdir.join("pkgconfig/libvma.pc"), Content::Text(pkg_config(options, &LIBVMA)));
    add(&options.libdir.join("librsocket.so.1"), Content::Program("librsocket.so"));
    add(&options.libdir.join("librsocket.so"), Content::Link("librsocket.so.1".into()));
    add(&options.libdir.join("pkgconfig/librsocket.pc"), Content::Text(pkg_config(options, &LIBRSOCKET)));
    add(&options.libdir.join(RSPRELOAD_FOLDER).join("librspreload.so"), Content::Program("librspreload.so"));
    for command in ["ringway", "vma_stats"] {
        add(&Path::new("bin").join(command), Content::Program(command));
    }
    for (from, to) in [
        ("ffi/vma/include/mellanox/vma_extra.h", "include/mellanox/vma_extra.h"),
        // (librdmacm's has its own in include/rdma.)
        ("ffi/rsocket/include/rdma/rsocket.h", "include/ringway/rdma/rsocket.h"),
        ("ffi/cli/man/ringway.1", "share/man/man1/ringway.1"),
        ("ffi/cli/man/vma_stats.8", "share/man/man8/vma_stats.8"),
        ("ffi/cli/systemd/ringway.conf", "share/doc/ringway/examples/systemd/ringway.conf"),
        ("CHANGELOG.md", "share/doc/ringway/CHANGELOG.md"),
        ("LICENSE-MIT", "share/doc/ringway/LICENSE-MIT"),
        ("LICENSE-APACHE", "share/doc/ringway/LICENSE-APACHE"),
    ] {
        add(Path::new(to), Content::Source(from.into()));
    }
    for command in MANUALS {
        add(Path::new(&format!("share/man/man1/ringway-{command}.1")), Content::Printed(vec!["man", command]));
    }
    add(Path::new("lib/systemd/system/ringway-broker.service"), Content::Text(unit(workspace, options)?));
    add(Path::new("share/man/man7/ringway-params.7"), Content::Printed(vec!["doctor", "--params", "--man"]));
    for (shell, to) in COMPLETIONS {
        add(Path::new(to), Content::Printed(vec!["completions", shell]));
    }
    let folder = Path::new("share/doc/ringway/examples");
    for example in examples(workspace)? {
        add(&folder.join(example.file_name().context("a file without a name")?), Content::Source(example));
    }
    add(&folder.join(BINDINGS), Content::Source(BINDINGS_SOURCE.into()));
    files.push(File { to: options.rules(), content: Content::Source(RULES.into()) });
    Ok(files)
}

/// Installs what was built, which is in the directory `built`.
///
/// # Errors
/// As [`run`].
pub(crate) fn install(workspace: &Workspace, built: &Path, options: &Options) -> Result<()> {
    for File { to, content } in files(workspace, options)? {
        let path = options.place(&to);
        // Somebody may have written rules of their own there.
        if to == options.rules() && path.exists() {
            println!("{} is left as it is", path.display());
            continue;
        }
        match content {
            Content::Source(from) => put(&workspace.root.join(from), &path, 0o644)?,
            Content::Program(name) => {
                put(&built.join(name), &path, 0o755)?;
                if !options.no_strip {
                    // Calls into a library are found by its dynamic symbols, which stay.
                    run_command(Command::new("strip").arg("--strip-unneeded").arg(&path))?;
                }
            }
            Content::Link(target) => {
                folder_of(&path)?;
                // (A link cannot be written over.)
                let _ = fs::remove_file(&path);
                symlink(target, &path).with_context(|| format!("{}", path.display()))?;
            }
            Content::Printed(arguments) => {
                let output = Command::new(built.join("ringway")).args(&arguments).output()?;
                ensure!(output.status.success() && !output.stdout.is_empty(), "ringway {}: {}", arguments.join(" "), output.status);
                write(&path, &output.stdout)?;
            }
            Content::Text(text) => write(&path, text.as_bytes())?,
        }
    }
    Ok(())
}

/// The examples: every file of their folders in those languages.
///
/// # Errors
/// A folder cannot be listed.
pub(crate) fn examples(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for (folder, languages) in EXAMPLES {
        let folder = workspace.root.join(folder);
        let entries = fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))?;
        let files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        let is_one = |path: &PathBuf| path.extension().is_some_and(|end| languages.iter().any(|language| end == *language));
        all.extend(files.into_iter().filter(is_one));
    }
    all.sort();
    Ok(all)
}

/// The broker's unit, with the command's path in it.
fn unit(workspace: &Workspace, options: &Options) -> Result<String> {
    let text = fs::read_to_string(workspace.root.join(UNIT)).with_context(|| UNIT.to_owned())?;
    let (from, to) = ("ExecStart=/usr/local/bin/ringway ", format!("ExecStart={}/bin/ringway ", options.prefix.display()));
    ensure!(text.contains(from), "{UNIT} starts something else");
    Ok(text.replace(from, &to))
}

/// What pkg-config tells of a library.
struct Described {
    name: &'static str,
    description: &'static str,
    version: &'static str,
    libs: &'static str,
    cflags: &'static str,
}

const LIBVMA: Described = Described {
    name: "libvma",
    description: "Socket programs in user space; the VMA Extra API. Programs are preloaded, not linked.",
    version: API,
    libs: "",
    cflags: "-I${includedir}",
};

const LIBRSOCKET: Described = Described {
    name: "librsocket",
    description: "rsockets (rsocket(7)) for programs that are linked with it, by the header rdma/rsocket.h",
    version: env!("CARGO_PKG_VERSION"),
    libs: "-L${libdir} -lrsocket",
    cflags: "-I${includedir}/ringway",
};

fn pkg_config(options: &Options, library: &Described) -> String {
    let Described { name, description, version, libs, cflags } = library;
    format!(
        "prefix={}\nlibdir=${{prefix}}/{}\nincludedir=${{prefix}}/include\n\nName: {name}\n\
         Description: {description}\nVersion: {version}\nLibs: {libs}\nCflags: {cflags}\n",
        options.prefix.display(),
        options.libdir.display()
    )
}

/// An absolute path, relative to the root.
fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{}", from.display()))?;
    write(to, &bytes)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// As a new file: a program may be running from the old one.
fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    folder_of(to)?;
    let _ = fs::remove_file(to);
    fs::write(to, bytes).with_context(|| format!("{}", to.display()))
}

fn folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file in no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))
}
