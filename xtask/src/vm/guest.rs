//! A guest: QEMU's process, what comes out of it, and its end.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::image::Image;

/// How often its output is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Of what a guest's kernel said, what is shown when it does not end.
const SHOWN_LINES: usize = 40;

/// A guest's end of the wire between two.
pub(crate) struct Wire {
    pub(crate) address: &'static str,
    pub(crate) peer: &'static str,
    mac: &'static str,
    /// What QEMU is told of its other end.
    socket: String,
    pcap: Option<PathBuf>,
}

impl Wire {
    /// Both ends. The first listens, by loopback; the second captures nothing, for it sees the same.
    pub(crate) fn between_two(pcap: Option<PathBuf>) -> Result<[Self; 2]> {
        // (Free now, and most likely so in a moment.)
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let [first, second] = ["10.9.0.1", "10.9.0.2"];
        let pcap = pcap.map(std::path::absolute).transpose()?;
        Ok([
            Self { address: first, peer: second, mac: "52:54:00:09:00:01", socket: format!("listen=127.0.0.1:{port}"), pcap },
            Self { address: second, peer: first, mac: "52:54:00:09:00:02", socket: format!("connect=127.0.0.1:{port}"), pcap: None },
        ])
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "-netdev".to_owned(),
            format!("socket,id=wire,{}", self.socket),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=wire,mac={},romfile=", self.mac),
        ];
        if let Some(pcap) = &self.pcap {
            arguments.extend(["-object".to_owned(), format!("filter-dump,id=pcap,netdev=wire,file={}", pcap.display())]);
        }
        arguments
    }
}

/// A guest that runs. It is killed when this is dropped.
pub(crate) struct Guest {
    qemu: Child,
    folder: PathBuf,
    end: Instant,
}

impl Guest {
    /// Starts it. Its files are put into the folder.
    ///
    /// # Errors
    /// Its image cannot be written, or there is no QEMU.
    pub(crate) fn start(folder: &Path, image: &Image<'_>, end: Instant) -> Result<Self> {
        fs::create_dir_all(folder)?;
        image.write(folder)?;
        let file = |name: &str| format!("file:{}", folder.join(name).display());
        for name in ["console", "output", "status", "qemu"] {
            fs::write(folder.join(name), "")?;
        }
        let mut qemu = Command::new("qemu-system-x86_64");
        // (KVM may be there, and hang while the kernel unpacks itself: what emulates an instruction at a time always works.)
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048", "-no-reboot", "-display", "none"]);
        // (On a busy machine the timer that is emulated is late, and the kernel that checks it gives up.)
        qemu.args(["-monitor", "none", "-nodefaults", "-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        qemu.arg("-kernel").arg(&image.kernel.image).arg("-initrd").arg(folder.join("initrd"));
        qemu.args(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"]);
        qemu.args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=hostroot"]);
        qemu.args(["console", "output", "status"].iter().flat_map(|name| ["-serial".to_owned(), file(name)]));
        if let Some(wire) = image.wire {
            qemu.args(wire.arguments());
        }
        let errors = File::options().append(true).open(folder.join("qemu"))?;
        let qemu = qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().context("qemu-system-x86_64")?;
        Ok(Self { qemu, folder: folder.to_owned(), end })
    }

    /// Passes the command's output on until it has ended; its exit status.
    ///
    /// # Errors
    /// It does not end in time, or the guest ends without it.
    pub(crate) fn finish(mut self) -> Result<i32> {
        let mut output = File::open(self.folder.join("output"))?;
        loop {
            // (Asked first: what it wrote before its end is read after.)
            let has_ended = self.qemu.try_wait()?.is_some();
            pass_on(&mut output)?;
            if has_ended {
                break;
            }
            if Instant::now() > self.end {
                bail!("the guest is not done in time; {}", self.last_words());
            }
            thread::sleep(LOOK_EVERY);
        }
        let status = fs::read_to_string(self.folder.join("status"))?;
        status.trim().parse().ok().with_context(|| format!("the guest ended without running the command; {}", self.last_words()))
    }

    /// What its kernel, and QEMU, said last.
    fn last_words(&self) -> String {
        let end_of = |name: &str| {
            let text = fs::read(self.folder.join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
        };
        format!("its console said last ({}):\n{}\n{}", self.folder.join("console").display(), end_of("console"), end_of("qemu"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        _ = self.qemu.kill();
        _ = self.qemu.wait();
    }
}

/// Writes what a file has more than before to standard output.
fn pass_on(file: &mut File) -> Result<()> {
    let mut more = Vec::new();
    let at = file.stream_position()?;
    file.read_to_end(&mut more)?;
    file.seek(SeekFrom::Start(at + more.len() as u64))?;
    let mut output = io::stdout().lock();
    output.write_all(&more)?;
    output.flush()?;
    Ok(())
}
