//! The list of nodes, with dialogs that add one or many.

pub mod node;
pub mod proposal;
pub mod server_functions;

use api::calls::{List, NewNode};
use api::limits;
use api::live::Topic;
use api::nodes::INVENTORY_FIELDS;
use api::nodes::{NodePage, NodeSummary};
use api::nodes::{NodeSort, NodeState, NodesQuery};
use engine::ids::{DeploymentName, Fqdn, NodeId};
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::addresses;
use crate::components::action::{on_success, problem_of};
use crate::components::list::{ListAddress, columns_of};
use crate::components::list_page::{Field, ListOf, ListPage, RowContext};
use crate::components::{
    Counts, Dialog, DialogHandle, Empty, EquivalentCommands, FieldError, FormValues, Icon,
    ProblemNotice, Refused, escape_textarea, icon, reset_on_success,
};
use crate::failure::ServerResult;
use crate::pages::deployments::DeploymentField;
use crate::pages::proposals::Alone;
use crate::permissions::OPERATOR;
use server_functions::{AddNode, AddNodes, DeleteNode, ProposeMove};

columns_of!(Part {
    Name "name" "Node",
    State "state" "State",
    Deployment "deployment" "Deployment",
    Steps "steps" "Steps",
    Connection "connection" "Connection",
});

/// The list, and the commands for readers with the permission.
#[derive(Clone, Copy)]
struct AllNodes {
    add: DialogHandle,
    paste: DialogHandle,
    move_to: About,
    removal: About,
}

impl ListPage for AllNodes {
    type Sort = NodeSort;
    type Part = Part;
    type Page = NodePage;
    type Key = NodeId;

    const ID: &'static str = "node";
    const NAMES: (&'static str, &'static str) = ("node", "nodes");
    const CURSOR_PARAM: &'static str = "after";
    const FIELDS: &'static [Field] = &[
        Field::text("filter", "Name contains", "name contains"),
        Field::choice("state", "State", "state is", || {
            vec![
                ("alive", "alive"),
                ("dead", "dead"),
                ("maintenance", "in maintenance"),
                ("record_only", "in no blueprint"),
            ]
        }),
        Field::text("deployment", "Deployment", "deployment is"),
    ];
    const SORTS: &'static [(NodeSort, &'static str)] = &[
        (NodeSort::Name, "name"),
        (NodeSort::State, "state"),
        (NodeSort::Deployment, "deployment"),
    ];
    const TOPICS: &'static [Topic] = &[Topic::Nodes, Topic::Blueprints];
    const API_LIST: List = List::Nodes;
    const RIGHT: Option<&'static str> = Some(OPERATOR);
    const COMMANDS: Option<&'static str> = Some("Actions");

    fn path(self) -> String {
        addresses::NODES.to_owned()
    }

    async fn fetch(self, address: ListAddress<NodeSort>) -> ServerResult<NodePage> {
        let state = address.one_of("state", &NodeState::EVERY, NodeState::as_str)?;
        let (sort, after) = address.page_position()?;
        let (filter, deployment) = (address.param("filter"), address.param("deployment"));
        server_functions::nodes(NodesQuery { filter, state, deployment, sort, limit: None, after })
            .await
    }

    fn sorted_by(column: Part) -> Option<(NodeSort, bool)> {
        match column {
            Part::Name => Some((NodeSort::Name, false)),
            Part::State => Some((NodeSort::State, false)),
            Part::Deployment => Some((NodeSort::Deployment, false)),
            Part::Steps | Part::Connection => None,
        }
    }

    fn key(node: &NodeSummary) -> NodeId {
        node.id
    }

    fn none(self) -> AnyView {
        view! {
            <Empty icon=Icon::Node title="No nodes yet">
                <p>
                    "A node is a machine that you bind roles to. Add one by its full name, or \
                     paste a list."
                </p>
            </Empty>
        }
        .into_any()
    }

    fn row(self, node: Memo<NodeSummary>, with: RowContext<Self>) -> AnyView {
        let name = move || {
            let fqdn = node.read().fqdn.clone();
            let page = addresses::node(&fqdn);
            view! { <a href=page><b>{fqdn}</b></a> }
        };
        let deployment = move || {
            let name = node.read().deployment.clone();
            view! { <a href=addresses::deployment(&name)>{name.to_string()}</a> }
        };
        let steps = view! {
            {move || view! { <Counts counts=node.read().steps/> }} " "
            {move || pending_link(&node.read())}
        };
        view! {
            <tr>
                <td>{name}</td>
                {with.cell(Part::State, "", move || status_cell(&node.read()))}
                {with.cell(Part::Deployment, "", deployment)}
                {with.cell(Part::Steps, "", steps)}
                {with.cell(Part::Connection, "muted", move || reached(&node.read()))}
                {with.may.then(|| changes(node, self))}
            </tr>
        }
        .into_any()
    }

    fn below(self, with: RowContext<Self>, again: Callback<()>) -> AnyView {
        let Self { add, paste, move_to, removal } = self;
        let dialogs = || {
            view! {
                <MoveDialog move_to/>
                <DeleteNodeDialog removal gone=again/>
                <AddNodeDialog handle=add added=again/>
                <AddNodesDialog handle=paste added=again/>
            }
        };
        with.may.then(dialogs).into_any()
    }
}

#[component]
pub fn Nodes() -> impl IntoView {
    let about = || About { node: RwSignal::new(None), dialog: DialogHandle::new() };
    let (add, paste) = (DialogHandle::new(), DialogHandle::new());
    let list = ListOf::new(AllNodes { add, paste, move_to: about(), removal: about() });
    view! {
        <Title text="Nodes"/>
        <div class="head">
            <h1>"Nodes"</h1>
            <div class="buttons">
                {list.with_side_content(move |may_change| view! {
                    <AddButtons may_change add paste/>
                }.into_any())}
            </div>
        </div>
        {list.view()}
    }
    .into_any()
}

/// The buttons that add nodes, or the required permission.
#[component]
fn AddButtons(may_change: bool, add: DialogHandle, paste: DialogHandle) -> impl IntoView {
    if !may_change {
        return view! {
            <small class="muted">
                "To change nodes, you need the permission " {OPERATOR} ". An admin can grant it."
            </small>
        }
        .into_any();
    }
    view! {
        <button
            class="button"
            type="button"
            commandfor="add-node"
            command="show-modal"
            on:click=add.on_click()
        >
            {icon(Icon::Plus)}
            "Add node"
        </button>
        <button
            class="button"
            type="button"
            commandfor="add-nodes"
            command="show-modal"
            on:click=paste.on_click()
        >
            {icon(Icon::Plus)}
            "Paste nodes"
        </button>
    }
    .into_any()
}

fn changes(node: Memo<NodeSummary>, AllNodes { move_to, removal, .. }: AllNodes) -> impl IntoView {
    let label = move || format!("Move {} to another deployment", node.read().fqdn);
    view! {
        <td data-label="Actions">
            <span class="buttons">
                <Alone
                    node=Signal::derive(move || node.read().id)
                    name=Signal::derive(move || node.read().fqdn.clone())
                />
                <button
                    class="button quiet small needs-scripts"
                    type="button"
                    aria-haspopup="dialog"
                    aria-label=label
                    title=label
                    on:click=move |_| move_to.open(node.get_untracked())
                >
                    {icon(Icon::Deployments)}
                    "Move…"
                </button>
                {move || node.read().record_only.then(|| {
                    let label = format!("Delete… {}", node.read_untracked().fqdn);
                    view! {
                        <button
                            class="button quiet small needs-scripts"
                            type="button"
                            aria-haspopup="dialog"
                            aria-label=label.clone()
                            title=label
                            on:click=move |_| removal.open(node.get_untracked())
                        >
                            {icon(Icon::Delete)}
                            "Delete…"
                        </button>
                    }
                })}
            </span>
        </td>
    }
    .into_any()
}

/// A link to the node's pending steps, if there are any.
fn pending_link(node: &NodeSummary) -> impl IntoView + use<> {
    let steps = node.steps;
    let waits = steps.blocked + steps.todo + steps.error > 0;
    waits.then(
        || view! { <small><a href=addresses::pending_on(&node.fqdn)>"pending steps"</a></small> },
    )
}

/// The connection, and the error of the last health check.
fn reached(node: &NodeSummary) -> impl IntoView + use<> {
    let error = node.error.clone().map(|error| view! { <small class="reason">{error}</small> });
    view! { <span>{node.transport.clone()} {error}</span> }
}

fn status_cell(node: &NodeSummary) -> impl IntoView + use<> {
    let new_bytes = !node.alive && node.transport == "ssh" && node.error.is_none();
    let (color, shape, word) = match (node.alive, node.available) {
        _ if new_bytes => ("blocked", Icon::Blocked, "not checked yet"),
        (true, true) => ("active", Icon::Active, "alive"),
        (true, false) => ("warn", Icon::Paused, "in maintenance"),
        (false, _) => ("error", Icon::Dead, "dead"),
    };
    view! { <span class="pill" data-state=color>{icon(shape)} {word}</span> }.into_any()
}

/// The node of a dialog.
#[derive(Clone, Copy)]
struct About {
    node: RwSignal<Option<NodeSummary>>,
    dialog: DialogHandle,
}

impl About {
    fn open(self, node: NodeSummary) {
        self.node.set(Some(node));
        self.dialog.open();
    }
}

/// Selects the destination of a node's move. The move is an edit of the destination's proposal, so
/// the user continues on its board.
#[component]
fn MoveDialog(move_to: About) -> impl IntoView {
    let title = Signal::derive(move || {
        move_to.node.read().as_ref().map(|node| format!("Move {}", node.fqdn)).unwrap_or_default()
    });
    let body = move || move_to.node.get().map(|node| view! { <MoveForm node/> });
    view! {
        <Dialog
            id="move-node"
            title=title
            handle=move_to.dialog
            closed=Callback::new(move |()| move_to.node.set(None))
        >
            {body}
        </Dialog>
    }
    .into_any()
}

#[component]
fn MoveForm(node: NodeSummary) -> impl IntoView {
    let propose = ServerAction::<ProposeMove>::new();
    let (home, to) = (StoredValue::new(node.deployment.to_string()), RwSignal::new(String::new()));
    let is_home = Memo::new(move |_| home.with_value(|home| *home == to.read().trim()));
    let is_ready =
        move || !to.read().trim().is_empty() && !is_home.get() && !propose.pending().get();
    let about = move || match is_home.get() {
        true => "The node is already in this deployment.",
        false => "If the deployment has an open proposal, the move is added to it.",
    };
    let same = move |_: FormValues| {
        DeploymentName::parse(to.read().trim())
            .map(|to| api::calls::propose(&to))
            .into_iter()
            .collect()
    };
    view! {
        <ActionForm action=propose attr:class="form">
            <input type="hidden" name="node" value=node.fqdn/>
            <div class="body">
                <p class="muted">
                    "The move becomes an edit in the proposal of the new deployment, where you can \
                     preview its impact."
                </p>
                <div class="field">
                    <label for="move-to">"New deployment"</label>
                    <DeploymentField
                        id="move-to"
                        value=to
                        typed=Callback::new(move |text| to.set(text))
                    />
                    <span class="hint" role="status">{about}</span>
                </div>
                <ProblemNotice problem=problem_of(propose)/>
                <EquivalentCommands of=same/>
            </div>
            <div class="foot">
                <button class="button primary" type="submit" disabled=move || !is_ready()>
                    "Open proposal"
                </button>
            </div>
        </ActionForm>
    }
    .into_any()
}

/// Deletes the record of a node that no target contains. The desired state does not change, so this
/// needs no review.
#[component]
fn DeleteNodeDialog(removal: About, gone: Callback<()>) -> impl IntoView {
    let act = ServerAction::<DeleteNode>::new();
    on_success(act, move |()| {
        removal.dialog.close();
        gone.run(());
    });
    let name =
        move || removal.node.read().as_ref().map(|node| node.fqdn.clone()).unwrap_or_default();
    let title = Signal::derive(move || format!("Delete {}?", name()));
    view! {
        <Dialog id="delete-node" title=title handle=removal.dialog>
            <ActionForm action=act attr:class="form">
                <input
                    type="hidden"
                    name="node"
                    value=move || removal.node.read().as_ref().map(|node| node.id.to_string())
                />
                <div class="body">
                    <p>
                        "The node is in no blueprint, so you can delete its record without a \
                         review. A proposal on the node alone is discarded. \
                         You can add the machine again under the same name."
                    </p>
                    <ProblemNotice problem=problem_of(act)/>
                    <EquivalentCommands of=move |_: FormValues| {
                        removal.node.read()
                            .as_ref()
                            .map(|node| api::calls::delete_node(node.id))
                            .into_iter().collect::<Vec<_>>()
                    }/>
                </div>
                <div class="foot">
                    <button
                        class="button danger"
                        type="submit"
                        disabled=move || act.pending().get()
                    >
                        {icon(Icon::Delete)} "Delete node"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

/// The node that the form describes. An example while the form is empty.
fn described_node(typed: FormValues) -> NewNode {
    let named = ["fqdn", "mac", "serial"].iter().any(|field| typed.is_checked(field));
    NewNode {
        fqdn: if named { typed.get("fqdn") } else { "NAME.EXAMPLE.COM".into() },
        macs: typed.get("mac"),
        serial: typed.get("serial"),
        root: if typed.is_checked("address") {
            typed.get("root")
        } else {
            typed.or("root", "/FOLDER")
        },
        addresses: typed.get("address"),
        port: typed.get("port"),
        user: typed.get("user"),
        key: typed.or("key", "SECRET"),
        host_key: typed.or("host_key", "HOST KEY"),
    }
}

#[component]
fn AddNodeDialog(handle: DialogHandle, added: Callback<()>) -> impl IntoView {
    let add = ServerAction::<AddNode>::new();
    let refused = Refused::of(add);
    // A refused name can be corrected and sent without JavaScript, so only typing disables the
    // button.
    let (name, is_typed) = (RwSignal::new(refused.value_or("fqdn", "")), RwSignal::new(false));
    on_success(add, move |_| {
        handle.close();
        name.set(String::new());
        is_typed.set(false);
        added.run(());
    });
    let error = Memo::new(move |_| {
        let name = name.get();
        (!name.trim().is_empty())
            .then(|| Fqdn::parse(name.trim()).err())
            .flatten()
            .map(|error| error.to_string())
    });
    let fields = reset_on_success(add, move |refused| {
        let before = |field: &str| refused.typed(field);
        let is_far = ["address", "port", "user", "key", "host_key"]
            .iter()
            .any(|field| before(field).is_some());
        view! {
            <div class="field">
                <label for="node-fqdn">"Name"</label>
                <input
                    class="input"
                    id="node-fqdn"
                    name="fqdn"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="web-7.rack1.example.com"
                    aria-invalid=move || error.read().is_some().then_some("true")
                    aria-describedby="node-fqdn-error"
                    value=before("fqdn")
                    prop:value=move || name.get()
                    on:input=move |event| {
                        is_typed.set(true);
                        name.set(event_target_value(&event));
                    }
                />
                <span class="hint">
                    "The fully qualified domain name. If it is empty, Gantry derives it from the \
                     MAC address or the serial number. A new node is in the deployment system."
                </span>
                <FieldError id="node-fqdn-error" of=error/>
            </div>
            <div class="field">
                <label for="node-mac">"MAC addresses"</label>
                <input
                    class="input mono"
                    id="node-mac"
                    name="mac"
                    value=before("mac")
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="00:25:90:aa:00:01"
                />
                <span class="hint">
                    "For a node without a name. Separate addresses with spaces."
                </span>
            </div>
            <div class="field">
                <label for="node-serial">"Serial number"</label>
                <input
                    class="input mono"
                    id="node-serial"
                    name="serial"
                    value=before("serial")
                    autocomplete="off"
                    spellcheck="false"
                />
                <span class="hint">"Used if the node has neither a name nor a MAC address."</span>
            </div>
            <div class="field">
                <label for="node-root">"Root folder"</label>
                <input
                    class="input mono"
                    id="node-root"
                    name="root"
                    value=before("root")
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="/srv/nodes/web-7"
                />
                <span class="hint">
                    "The folder that is the node's root: on the node if it has an SSH connection, \
                     otherwise on the worker's machine. With SSH, the default is the whole file \
                     system."
                </span>
            </div>
            <details class="more" open=is_far>
                <summary>{icon(Icon::Right)} "SSH connection"</summary>
                <div class="fields">
                    <div class="field">
                        <label for="node-address">"Addresses"</label>
                        <input
                            class="input mono"
                            id="node-address"
                            name="address"
                            value=before("address")
                            autocomplete="off"
                            spellcheck="false"
                            placeholder="10.0.3.7 web-7.mgmt.example.com"
                        />
                        <span class="hint">
                            "Host names or IP addresses, tried in this order. If empty, the node \
                             is a folder on the worker's machine."
                        </span>
                    </div>
                    <div class="field">
                        <label for="node-port">"Port"</label>
                        <input
                            class="input mono"
                            id="node-port"
                            name="port"
                            value=before("port")
                            inputmode="numeric"
                            autocomplete="off"
                            placeholder="22"
                        />
                    </div>
                    <div class="field">
                        <label for="node-user">"User"</label>
                        <input
                            class="input mono"
                            id="node-user"
                            name="user"
                            value=before("user")
                            autocomplete="off"
                            spellcheck="false"
                            placeholder="root"
                        />
                    </div>
                    <div class="field">
                        <label for="node-key">"Key"</label>
                        <input
                            class="input mono"
                            id="node-key"
                            name="key"
                            value=before("key")
                            autocomplete="off"
                            spellcheck="false"
                            placeholder="deploy/ssh"
                        />
                        <span class="hint">
                            "The name of the secret that contains the private key. Workers read \
                             the key from a file. Never enter the key itself."
                        </span>
                    </div>
                    <div class="field">
                        <label for="node-host-key">"Host key"</label>
                        <input
                            class="input mono"
                            id="node-host-key"
                            name="host_key"
                            value=before("host_key")
                            autocomplete="off"
                            spellcheck="false"
                            placeholder="ssh-ed25519 AAAA…"
                        />
                        <span class="hint">
                            "The output of " <code>"ssh-keyscan -t ed25519 HOST"</code>
                            " after the host name. Workers accept no other key."
                        </span>
                    </div>
                </div>
            </details>
            <ProblemNotice problem=problem_of(add)/>
            <EquivalentCommands
                of=move |typed: FormValues| vec![api::calls::add_node(&described_node(typed))]
            />
        }
        .into_any()
    });
    view! {
        <Dialog id="add-node" title="Add node".to_owned() handle=handle refused=refused.is_here()>
            <ActionForm action=add attr:class="form">
                <div class="body">
                    {fields}
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || (is_typed.get() && error.read().is_some()) || add
                            .pending()
                            .get()
                    >
                        "Add node"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}

/// Adds nodes from a text with one node per line: all or none.
#[component]
fn AddNodesDialog(handle: DialogHandle, added: Callback<()>) -> impl IntoView {
    let add = ServerAction::<AddNodes>::new();
    on_success(add, move |_| added.run(()));
    let fields = reset_on_success(add, |refused| {
        view! {
            <div class="field">
                <label for="nodes-text">"Nodes, one per line"</label>
                <textarea
                    class="area code"
                    id="nodes-text"
                    name="text"
                    required
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="web-7.rack1.example.com root=/srv/nodes/web-7"
                    aria-describedby="nodes-text-hint"
                >
                    {escape_textarea(refused.value_or("text", ""))}
                </textarea>
                <span class="hint" id="nodes-text-hint">
                    "A line has a name and then fields, such \
                     as " <code>"root=/srv/nodes/web-7"</code> " or "
                    <code>"ssh=10.0.3.7 key=deploy/ssh host_key=\"ssh-ed25519 AAAA…\""</code>
                    ". Put values with spaces in double quotes. A # starts a comment. Gantry adds \
                     all nodes or none, at most "
                    {limits::INVENTORY} "."
                </span>
                <span class="hint">"Fields: " {INVENTORY_FIELDS.join(", ")} "."</span>
            </div>
        }
        .into_any()
    });
    let result = move || {
        let summary = match add.value().get()?.ok()? {
            1 => "1 node added".to_owned(),
            count => format!("{count} nodes added"),
        };
        Some(view! {
            <div class="notice" data-state="active" role="status">
                {icon(Icon::Check)} <div><b>{summary}</b></div>
            </div>
        })
    };
    view! {
        <Dialog
            id="add-nodes"
            title="Paste nodes".to_owned()
            handle=handle
            wide=true
            refused=Refused::of(add).is_here()
        >
            <ActionForm action=add attr:class="form">
                <div class="body">
                    {fields}
                    {result}
                    <ProblemNotice problem=problem_of(add)/>
                    <EquivalentCommands
                        of=move |typed: FormValues| vec![
                            api::calls::add_nodes(&typed.or("text", "NAME.EXAMPLE.COM \
                                root=/FOLDER"))
                        ]
                    />
                </div>
                <div class="foot">
                    <button
                        class="button primary"
                        type="submit"
                        disabled=move || add.pending().get()
                    >
                        "Add nodes"
                    </button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
