//! The preview of using another version of a barclamp.

use api::Problem;
use api::views::board::EditsPreview;
use engine::ids::ProposalId;
use engine::plan::{Edit, NumberedEdit};

use crate::Control;
use crate::people::{Actor, Permission};
use crate::problems::{from_store, no_proposal};
use crate::proposals::change::{NewEdits, counting, edit_errors_on_pool, place_of, plan};
use crate::proposals::edit_text::check_edit;
use crate::proposals::summary;

impl Control {
    /// Previews a proposal with further edits, without making the edits. A preview costs as much as
    /// the edits themselves, so it requires the same permission.
    pub async fn preview_edits(
        &self,
        actor: &Actor,
        proposal: ProposalId,
        edits: Vec<Edit>,
    ) -> Result<EditsPreview, Problem> {
        actor.require_somewhere(Permission::Operator)?;
        if edits.is_empty() || edits.len() > crate::proposals::change::MAX_EDITS_PER_CALL {
            return Err(Problem::invalid("Send 1 to 1000 edits to preview."));
        }
        edits.iter().try_for_each(check_edit)?;
        let present = self.current_state().await?;
        let mut connection = self.connection().await?;
        let row =
            store::proposals::proposal(&mut connection, proposal).await.map_err(from_store)?;
        let row = row.ok_or_else(|| no_proposal(proposal))?;
        actor.require_in(Permission::Operator, place_of(&present, &row))?;
        if row.state != "open" {
            // The page is older than the proposal's end. Report it like any other refusal of the
            // edits.
            let note = format!(
                "This proposal was {} and accepts no more edits. Open a new proposal.",
                row.state
            );
            return Ok(EditsPreview { refused: vec![note], lines: Vec::new() });
        }
        let rows = store::proposals::edits(&mut connection, row.id).await.map_err(from_store)?;
        drop(connection);
        let by = self.compute_for(actor);
        let new = NewEdits::in_order(&by, &present, &rows, edits).await?;
        let refused = edit_errors_on_pool(&by, &present, row.scope(), &rows, &new).await?;
        let first = rows.last().map_or(1, |e| e.edit.seq + 1);
        let mut all = counting(&rows);
        all.extend((first..).zip(new.edits).map(|(seq, edit)| NumberedEdit { seq, edit }));
        let lines = by.work(move || {
            let planned = plan(&present, &all)?;
            Ok::<_, Problem>(summary::lines_of(&present, &all, &planned))
        });
        let refused = refused.into_iter().map(|finding| finding.detail).collect();
        Ok(EditsPreview { refused, lines: lines.await?? })
    }
}
