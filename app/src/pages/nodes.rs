//! All nodes, and the way to add one.

use api::console::{NodePage, NodeSummary};
use api::live::Topic;
use engine::ids::Fqdn;
use leptos::form::ActionForm;
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::Form;
use leptos_router::hooks::use_query_map;

use crate::calls::{self, AddNode};
use crate::live::{NOW, use_live};
use crate::parts::act::{problem_of, when_done};
use crate::parts::{Counts, Dialog, DialogHandle, Empty, Feed, Icon, ProblemNotice, icon, load, rows};
use crate::places;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    filter: String,
    after: Option<String>,
}

/// The list of nodes.
#[component]
pub fn Nodes() -> impl IntoView {
    let query = use_query_map();
    let wanted = Memo::new(move |_| {
        let query = query.read();
        Wanted { filter: query.get("filter").unwrap_or_default(), after: query.get("after") }
    });
    let nodes = Resource::new(move || wanted.get(), |wanted| calls::nodes(wanted.filter, wanted.after));
    let dialog = DialogHandle::new();
    view! {
        <Title text="Nodes"/>
        <div class="head">
            <h1>"Nodes"</h1>
            <div class="buttons">
                <button class="button" type="button" commandfor="add-node" command="show-modal" on:click=dialog.on_click()>
                    {icon(Icon::Plus)}
                    "Add node"
                </button>
            </div>
        </div>
        <Form method="GET" action=places::NODES attr:class="filters" attr:role="search">
            <div class="field">
                <label for="node-filter">"Name contains"</label>
                <input class="input" id="node-filter" name="filter" autocomplete="off" value=move || wanted.read().filter.clone()/>
            </div>
            <button class="button" type="submit">{icon(Icon::Search)} "Filter"</button>
        </Form>
        {load(nodes, move |first| view! { <List first wanted=wanted.get_untracked() dialog/> })}
    }
    .into_any()
}

#[component]
fn List(first: NodePage, wanted: Wanted, dialog: DialogHandle) -> impl IntoView {
    let page = |after: &str| {
        let filter = places::encoded(&wanted.filter);
        format!("{}?filter={filter}&after={}", places::NODES, places::encoded(after))
    };
    let next = first.next.as_deref().map(page);
    let is_filtered = !wanted.filter.is_empty() || wanted.after.is_some();
    let feed = Feed::new(first, move || calls::nodes(wanted.filter.clone(), wanted.after.clone()));
    use_live().hear(vec![Topic::Nodes, Topic::Targets], NOW, move |_| feed.soon());
    let list = Memo::new(move |_| feed.value().read().nodes.clone());
    let is_empty = Memo::new(move |_| list.read().is_empty());
    let table = move || match (is_empty.get(), is_filtered) {
        (true, true) => view! {
            <Empty icon=Icon::Search title="No node has that in its name">
                <a class="button" href=places::NODES>"All nodes"</a>
            </Empty>
        }
        .into_any(),
        (true, false) => view! {
            <Empty icon=Icon::Node title="No nodes yet">
                <p>"A node is a machine that roles are bound to. Add the first one by its full name."</p>
            </Empty>
        }
        .into_any(),
        (false, _) => view! {
            <table class="table folds">
                <thead>
                    <tr>
                        <th scope="col">"Node"</th>
                        <th scope="col">"Life"</th>
                        <th scope="col">"Deployment"</th>
                        <th scope="col">"Steps"</th>
                        <th scope="col">"Reached"</th>
                    </tr>
                </thead>
                <tbody>{rows(list.into(), |node| node.id, row)}</tbody>
            </table>
        }
        .into_any(),
    };
    view! {
        <ProblemNotice problem=feed.problem()/>
        <div class="card">
            {table}
            {next.map(|next| view! {
                <nav class="pager" aria-label="Pages of the list">
                    <span class="grow"></span>
                    <a class="button small" href=next>"Next" {icon(Icon::Right)}</a>
                </nav>
            })}
        </div>
        <AddNodeDialog handle=dialog added=Callback::new(move |()| feed.now())/>
    }
    .into_any()
}

fn row(node: Memo<NodeSummary>) -> impl IntoView {
    view! {
        <tr>
            <td><b>{move || node.read().fqdn.clone()}</b></td>
            <td data-label="Life">{move || life(&node.read())}</td>
            <td data-label="Deployment">{move || {
                let name = node.read().deployment.clone();
                view! { <a href=places::deployment(&name)>{name.to_string()}</a> }
            }}</td>
            <td data-label="Steps">{move || view! { <Counts counts=node.read().steps/> }}</td>
            <td data-label="Reached" class="muted">{move || node.read().transport.clone()}</td>
        </tr>
    }
    .into_any()
}

fn life(node: &NodeSummary) -> impl IntoView + use<> {
    let (colour, shape, word) = match (node.alive, node.available) {
        (true, true) => ("active", Icon::Active, "alive"),
        (true, false) => ("warn", Icon::Paused, "unavailable"),
        (false, _) => ("error", Icon::Dead, "dead"),
    };
    view! { <span class="pill" data-state=colour>{icon(shape)} {word}</span> }.into_any()
}

#[component]
fn AddNodeDialog(handle: DialogHandle, added: Callback<()>) -> impl IntoView {
    let add = ServerAction::<AddNode>::new();
    let name = RwSignal::new(String::new());
    when_done(add, move |_| {
        handle.close();
        name.set(String::new());
        added.run(());
    });
    let fault = Memo::new(move |_| {
        let name = name.get();
        (!name.trim().is_empty()).then(|| Fqdn::parse(name.trim()).err()).flatten().map(|error| error.to_string())
    });
    view! {
        <Dialog id="add-node" title="Add node".to_owned() handle=handle>
            <ActionForm action=add attr:class="form">
                <div class="body">
                    <div class="field">
                        <label for="node-fqdn">"Name"</label>
                        <input
                            class="input"
                            id="node-fqdn"
                            name="fqdn"
                            autocomplete="off"
                            spellcheck="false"
                            placeholder="web-7.rack1.example.com"
                            aria-invalid=move || fault.read().is_some().then_some("true")
                            aria-describedby="node-fqdn-fault"
                            prop:value=move || name.get()
                            on:input=move |event| name.set(event_target_value(&event))
                        />
                        <span class="hint">"Its fully qualified domain name; left empty it follows from the MAC address or the serial number. A new node belongs to the deployment system."</span>
                        <div id="node-fqdn-fault" aria-live="polite">
                            {move || fault.get().map(|fault| view! { <p class="fault">{icon(Icon::Error)} <span>{fault}</span></p> })}
                        </div>
                    </div>
                    <div class="field">
                        <label for="node-mac">"MAC addresses"</label>
                        <input class="input mono" id="node-mac" name="mac" autocomplete="off" spellcheck="false" placeholder="00:25:90:aa:00:01"/>
                        <span class="hint">"For a node without a name. Several are parted by spaces."</span>
                    </div>
                    <div class="field">
                        <label for="node-serial">"Serial number"</label>
                        <input class="input mono" id="node-serial" name="serial" autocomplete="off" spellcheck="false"/>
                        <span class="hint">"Counts when there is neither a name nor a MAC address."</span>
                    </div>
                    <div class="field">
                        <label for="node-root">"Root folder"</label>
                        <input class="input mono" id="node-root" name="root" required autocomplete="off" spellcheck="false" placeholder="/srv/nodes/web-7"/>
                        <span class="hint">"A folder on the worker's machine that stands for the node's file system."</span>
                    </div>
                    <ProblemNotice problem=problem_of(add)/>
                </div>
                <div class="foot">
                    <button class="button primary" type="submit" disabled=move || fault.read().is_some() || add.pending().get()>"Add"</button>
                </div>
            </ActionForm>
        </Dialog>
    }
    .into_any()
}
