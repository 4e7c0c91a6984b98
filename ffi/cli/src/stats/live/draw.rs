//! How the live view looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};
use ringway_cli::columns::{self, Column};
use ringway_cli::table::short;
use ringway_report::full::{self, Unit, percentage};
use ringway_report::{ProcessReport, SocketReport, WaitReport};

use super::state::{App, Focus};
use crate::stats::view::summary;

/// Processes that are listed without scrolling.
const PROCESSES: u16 = 6;
/// The height of the middle part, and what it is on a screen that is lower than this one: the sockets below it are to have some lines.
const MIDDLE: u16 = 11;
const MIDDLE_LOW: u16 = 7;
const LOW: u16 = 32;

const KEYS: &str = " q end  tab list  enter detail  s sort  / filter  p pause  +- interval  ? keys";

const HELP: [&str; 11] = [
    "q, ctrl-c    end",
    "tab          processes or sockets",
    "up, down     select (k, j; page up, page down)",
    "enter        a socket in detail",
    "s            sort by the next column",
    "/            filter sockets by what is typed; enter, esc",
    "             (state=estab port=80 program=web, or any text)",
    "p, space     pause",
    "+, -         samples more, or less often",
    "esc          close, or forget the filter",
    "?            this",
];

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let processes = app.now.as_ref().map_or(0, |now| now.processes.len());
    let listed = u16::try_from(processes).unwrap_or(u16::MAX).clamp(1, PROCESSES);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(listed + 3),
        Constraint::Length(if frame.area().height < LOW { MIDDLE_LOW } else { MIDDLE }),
        Constraint::Min(4),
        Constraint::Length(1),
    ];
    let [title, sums, top, middle, bottom, keys] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(app, processes)), title);
    if let Some(now) = &app.now {
        let lines: Vec<_> = summary(&now.processes).map(|line| Line::from(format!(" {line}"))).into();
        frame.render_widget(Paragraph::new(lines), sums);
    }
    if processes == 0 {
        let nothing = Paragraph::new("no process of this user runs on Ringway in this network namespace");
        frame.render_widget(nothing.block(Block::bordered().title("processes")), top);
    } else {
        list_processes(frame, app, top);
    }
    let [lines, detail] = Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(middle);
    sparklines(frame, app, lines);
    ring(frame, app, detail);
    list_sockets(frame, app, bottom);
    frame.render_widget(Paragraph::new(KEYS).dim(), keys);
    if app.help {
        popup(frame, "keys", HELP.map(str::to_owned).to_vec());
    } else if app.detail
        && let Some(socket) = app.sockets().get(app.socket)
    {
        popup(frame, "socket", in_detail(socket));
    }
}

fn heading(app: &App, processes: usize) -> Line<'static> {
    let mut words = vec![
        Span::from(" ringway stats ").bold().reversed(),
        Span::from(format!("  {processes} processes  every {:.1} s  sorted by {}", app.interval.as_secs_f64(), app.sort.name())),
    ];
    match &app.typed {
        Some(text) => words.push(Span::from(format!("  filter: {text}_")).yellow()),
        None if !app.shown_filter.is_empty() => words.push(Span::from(format!("  filter: {}", app.shown_filter)).yellow()),
        None => {}
    }
    if app.paused {
        words.push(Span::from("  paused").red());
    }
    Line::from(words)
}

fn block(title: String, focused: bool) -> Block<'static> {
    let block = Block::bordered().title(title);
    if focused { block.border_style(Style::new().fg(Color::Cyan)) } else { block }
}

/// A table inside of a frame around `area`. Columns for which there is no room however the others are squeezed are left out, from the right: half a
/// number would be a wrong one. Rows for which `is_dim` says so are dim.
fn fitted(columns: &[Column], rows: Vec<Vec<String>>, area: Rect, is_dim: impl Fn(usize) -> bool) -> Table<'static> {
    let inside = usize::from(area.width.saturating_sub(2));
    let fitted = columns::fit(columns, rows, inside, 1);
    let ends = fitted.widths.iter().scan(0, |end, &width| {
        *end += width + 1;
        Some(*end)
    });
    let shown = ends.take_while(|&end| end <= inside + 1).count();
    let row = |cells: Vec<String>| {
        let cell = |(text, column): (String, &Column)| {
            let line = Line::from(text);
            Cell::from(if column.is_number() { line.right_aligned() } else { line })
        };
        Row::new(cells.into_iter().zip(columns).take(shown).map(cell).collect::<Vec<_>>())
    };
    let widths: Vec<_> = fitted.widths[..shown].iter().map(|&width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX))).collect();
    let rows = fitted.rows.into_iter().enumerate().map(|(at, cells)| if is_dim(at) { row(cells).dim() } else { row(cells) });
    Table::new(rows.collect::<Vec<_>>(), widths).header(row(fitted.header).bold())
}

fn chosen() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

const PROCESS_COLUMNS: [Column; 12] = [
    Column::text("program", "program", 7),
    Column::text("device", "dev", 3),
    Column::number("pid", "pid"),
    Column::number("peers", "peer"),
    Column::number("sockets", "sock"),
    Column::number("rx B/s", "rxB/s"),
    Column::number("tx B/s", "txB/s"),
    Column::number("rx/s", "rx/s"),
    Column::number("tx/s", "tx/s"),
    Column::number("drops", "drop"),
    Column::number("retrans", "retr"),
    Column::number("sleeps/s", "slp/s"),
];

fn list_processes(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let processes = app.now.as_ref().map_or(&[][..], |now| &now.processes);
    let line = |p: &ProcessReport| {
        let rate = |of: fn(&ringway_report::RingReport) -> u64| short(app.ring_rate(p, of));
        let device = p.device.as_ref().map_or_else(|| "kernel".to_owned(), |d| d.kind.clone());
        let peers = p.device.as_ref().map_or(0, |d| d.peers);
        vec![
            p.program.clone(),
            device,
            p.pid.to_string(),
            peers.to_string(),
            p.sockets_total.max(p.sockets.len() as u64).to_string(),
            rate(|r| r.rx_bytes),
            rate(|r| r.tx_bytes),
            rate(|r| r.rx_packets),
            rate(|r| r.tx_packets),
            short(p.ring.rx_drops + p.ring.tx_drops),
            short(p.ring.retransmissions),
            rate(|r| r.sleeps),
        ]
    };
    let table = fitted(&PROCESS_COLUMNS, processes.iter().map(line).collect(), area, |_| false)
        .row_highlight_style(chosen())
        .block(block("processes".to_owned(), app.focus == Focus::Processes));
    let at = processes.iter().position(|process| Some(process.pid) == app.process);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(at));
}

fn sparklines(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let halves = Layout::vertical([Constraint::Percentage(50), Constraint::Percentage(50)]);
    let [up, down]: [Rect; 2] = halves.areas(area);
    let history = app.process.and_then(|pid| app.histories.get(&pid)).cloned().unwrap_or_default();
    for (area, name, values, colour) in [(up, "rx", history.rx, Color::Green), (down, "tx", history.tx, Color::Blue)] {
        let (last, peak) = (values.back().copied().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
        // The newest at the right end.
        let room = usize::from(area.width.saturating_sub(2));
        let skipped = values.len().saturating_sub(room);
        let missing = room.saturating_sub(values.len());
        let data: Vec<u64> = std::iter::repeat_n(0, missing).chain(values.into_iter().skip(skipped)).collect();
        let title = format!("{name} {}B/s, at most {}B/s", short(last), short(peak));
        frame.render_widget(Sparkline::default().data(data).style(Style::new().fg(colour)).block(Block::bordered().title(title)), area);
    }
}

fn ring(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some(process) = app.selected() else {
        return frame.render_widget(Block::bordered().title("ring"), area);
    };
    let r = &process.ring;
    let rate = |of: fn(&ringway_report::RingReport) -> u64| app.ring_rate(process, of);
    let (frames, batches) = (rate(|r| r.rx_packets), rate(|r| r.batches));
    let mean = if batches == 0 { 0.0 } else { frames as f64 / batches as f64 };
    let mut lines = vec![
        format!("CQ    {} batches/s of {mean:.1} frames, {} at most", short(batches), r.batch_max),
        format!("      {} polls/s, {} sleeps/s", short(rate(|r| r.polls)), short(rate(|r| r.sleeps))),
        format!("ring  rx {} frames, {} dropped", short(r.rx_packets), short(r.rx_drops)),
        format!("      tx {} frames, {} dropped", short(r.tx_packets), short(r.tx_drops)),
        format!("      {} sockets, {} flows", r.sockets, r.flows),
        format!("      {} of {} send buffers", short(r.tx_buffers_used), short(r.tx_buffers)),
        format!("claims {} taken, {} refused", short(r.core_claims), short(r.core_claims_refused)),
    ];
    lines.extend((r.to_kernel > 0).then(|| format!("{} connections left for the kernel", short(r.to_kernel))));
    lines.extend(process.waits.iter().map(wait));
    let name = process.device.as_ref().map_or_else(|| "the kernel".to_owned(), |d| format!("{} {}", d.kind, d.mac));
    let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(format!("{} {}: {name}", process.program, process.pid))), area);
}

fn wait(wait: &WaitReport) -> String {
    let name = if wait.fd < 0 { wait.kind.clone() } else { format!("{} {}", wait.kind, wait.fd) };
    let hits = percentage(wait.poll_hits, wait.poll_misses);
    format!("{name}: {} ready, {} timeouts, {hits:.0}% spun", short(wait.ready), short(wait.timeouts))
}

const SOCKET_COLUMNS: [Column; 13] = [
    Column::text("proto", "pro", 3),
    Column::text("state", "state", 5),
    Column::address("local"),
    Column::address("remote"),
    Column::text("carried by", "by", 4),
    Column::number("fd", "fd"),
    Column::number("rx B/s", "rx/s"),
    Column::number("tx B/s", "tx/s"),
    Column::number("recv-q", "rcvq"),
    Column::number("send-q", "sndq"),
    Column::number("rtt us", "rtt"),
    Column::number("cwnd", "cwnd"),
    Column::number("retrans", "retr"),
];

fn list_sockets(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let sockets = app.sockets();
    let device = app.selected().and_then(|process| process.device.as_ref()).map_or("ring", |device| &device.kind);
    let line = |s: &SocketReport| {
        let carrier = match (s.offloaded, &s.reason) {
            (true, _) => device.to_owned(),
            (false, Some(reason)) => format!("kernel: {reason}"),
            (false, None) => "kernel".to_owned(),
        };
        let tcp = |of: fn(&ringway_report::TcpReport) -> u64| s.tcp.as_ref().map_or_else(|| "-".to_owned(), |tcp| short(of(tcp)));
        vec![
            s.protocol.clone(),
            s.state.clone(),
            s.local.clone(),
            s.remote.clone(),
            carrier,
            s.fd.to_string(),
            short(app.socket_rate(s, |s| s.rx_bytes)),
            short(app.socket_rate(s, |s| s.tx_bytes)),
            short(s.recv_queue),
            short(s.send_queue),
            tcp(|tcp| tcp.rtt_us),
            tcp(|tcp| tcp.cwnd),
            short(s.retransmissions),
        ]
    };
    let table = fitted(&SOCKET_COLUMNS, sockets.iter().map(line).collect(), area, |at| !sockets[at].offloaded)
        .row_highlight_style(if app.focus == Focus::Sockets { chosen() } else { Style::new() })
        .block(block(format!("sockets ({})", sockets.len()), app.focus == Focus::Sockets));
    let mut state = TableState::new().with_selected((!sockets.is_empty()).then_some(app.socket));
    frame.render_stateful_widget(table, area, &mut state);
}

fn in_detail(socket: &SocketReport) -> Vec<String> {
    // (The separator is for files.)
    let mut lines: Vec<String> = full::socket(socket, Unit::Total).into_iter().skip(1).map(|line| line.trim().to_owned()).collect();
    if let Some(tcp) = &socket.tcp {
        let threshold = tcp.ssthresh.map_or_else(|| "none".to_owned(), short);
        lines.push(format!("Round trip: {} us, +- {} us, timeout {} us", tcp.rtt_us, tcp.rtt_var_us, tcp.rto_us));
        lines.push(format!(
            "Congestion: window {}, threshold {threshold}, {}",
            short(tcp.cwnd),
            if tcp.recovering { "recovers" } else { "open" }
        ));
        lines.push(format!("On the way: {}, not sent: {}, MSS {}", short(tcp.in_flight), short(tcp.not_sent), tcp.mss));
        lines.push(format!("Windows: the peer's {}, ours {}", short(tcp.snd_wnd), short(tcp.rcv_wnd)));
    }
    lines.extend(socket.reason.iter().map(|reason| format!("On the kernel: {reason}")));
    lines.extend(socket.rule.iter().map(|rule| format!("By the rule {rule}")));
    lines
}

fn popup(frame: &mut Frame<'_>, title: &str, lines: Vec<String>) {
    let area = frame.area();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.len()) + 4;
    let (width, height) =
        (u16::try_from(width).unwrap_or(u16::MAX).min(area.width), u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let text: Vec<Line<'_>> = lines.into_iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(title.to_owned())), place);
}
