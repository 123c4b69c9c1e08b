//! The data of the frame around every page: the person, waiting reviews and the execution switch.

use api::Problem;
use api::reviews::ReviewCount;
use api::views::frame::{Frame, Me};

use crate::Control;
use crate::people::{Actor, Permission};

impl Control {
    /// The data for the frame around every page. Without Viewer it contains only the person's
    /// identity, so that they can sign out.
    pub async fn frame(&self, actor: &Actor) -> Result<Frame, Problem> {
        let me = Me {
            id: actor.person,
            name: actor.name.clone(),
            permissions: actor.permission_names(),
            session: actor.session.as_ref().map(|session| session.id),
        };
        if !actor.may(Permission::Viewer) {
            let reviews_waiting = ReviewCount::default();
            return Ok(Frame {
                me,
                pending_reviews: reviews_waiting,
                execution: None,
                cursor: None,
                reset: None,
            });
        }
        let cursor = self.current_cursor().await?;
        let reset = match &actor.session {
            Some(_) => crate::people::notices(&mut *self.connection().await?, actor.person)
                .await?
                .into_iter()
                .next(),
            None => None,
        };
        let present = self.current_state().await?;
        Ok(Frame {
            me,
            pending_reviews: self.waiting_for(actor, &present).await?,
            execution: Some(present.head.enabled),
            cursor: Some(cursor),
            reset,
        })
    }
}
