//! The guards' refusals as a type, so that callers match codes and not messages.

/// The reason why a guard rejects a statement. One variant for each SQLSTATE of class `GY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// GY001: an append-only row is changed or deleted.
    AppendOnly,
    /// GY002: intent is changed outside a commit.
    IntentOutsideCommit,
    /// GY003: the blueprint does not follow the current one (number, parent, switch or genesis).
    NotNextBlueprint,
    /// GY004: the base of the review has changed.
    BaseChanged,
    /// GY005: the proposal is not open at this version.
    ProposalChanged,
    /// GY006: another policy is in force.
    PolicyChanged,
    /// GY007: approvals are missing, or a reviewer requested changes.
    NotApproved,
    /// GY008: the review is from another epoch (a backup was restored since).
    EpochMismatch,
    /// GY009: the review is incomplete. A deployment is missing in its base, an author or a risk is
    /// missing, or it changes nothing.
    IncompleteReview,
    /// GY010: the new root differs from its parent in documents that the review does not list.
    UnlistedDocuments,
    /// GY011: an author gives a verdict.
    VerdictByAuthor,
    /// GY012: the person may not review.
    NotAReviewer,
    /// GY013: rows are added to a review after it was submitted.
    ReviewSealed,
    /// GY014: a commit ends without a complete projection of its changes.
    IncompleteProjection,
    /// GY015: the identity of a run (step, generation, ...) is changed.
    RunIdentityChanged,
    /// GY016: a single-use row is used again, or a closed one is reopened.
    AlreadyUsed,
    /// GY017: a discussion thread is open.
    OpenThreads,
    /// GY018: the person may not comment or resolve the thread.
    DiscussionDenied,
    /// GY019: the person may not, or may no longer, commit, switch, put on hold or propose.
    CannotCommit,
    /// GY020: the root folders of two local nodes overlap.
    RootFoldersOverlap,
    /// GY021: a deployment exceeds the depth limit of the tree.
    TreeTooDeep,
    /// GY022: a review of a node-scoped proposal changes more than that node.
    OutsideScope,
    /// GY023: another node has this address or MAC address.
    DuplicateAddress,
    /// GY024: no admin would be left.
    LastAdmin,
    /// GY025: a permission is granted in a deployment that does not exist or is the system
    /// deployment.
    InvalidGrantScope,
    /// GY026: a person gets the name that Gantry uses for itself.
    ReservedName,
    /// GY027: a commit moves a deployment out of a hold.
    LeavesHold,
    /// GY028: a moved deployment has a noderole that waits for another one outside of its
    /// ancestors.
    ParentNotAbove,
    /// GY030: the connection or hints of a node with a document are changed outside a commit.
    NodeRecordOutsideCommit,
    /// GY031: the connection or hints of a node differ from its document.
    NodeRecordMismatch,
    /// GY032: the connection or hints of a node change while it has an open run.
    NodeBusy,
    /// GY035: a row names a person for whom the transaction does not act.
    PersonMismatch,
    /// GY036: the row requires a session or a token with another scope.
    InsufficientCredential,
    /// GY037: people, links or passwords are changed without an admin's session or the old
    /// password.
    NotAnAdmin,
    /// GY038: a session is extended beyond its limits.
    SessionLimitExceeded,
    /// GY056: the version of a barclamp is invalid, or another spelling of a stored version.
    BarclampVersion,
    /// GY040: approvals do not count because an author gave these people access.
    ApprovalExcluded,
    /// GY041: this admin may not confirm the access change.
    CannotConfirmAccess,
    /// GY042: a session that began with an admin's link acts before its person sets a password, or
    /// gets another admin.
    LinkSessionRestricted,
    /// GY044: an audit entry names another actor than the person for whom the transaction acts.
    ActorMismatch,
    /// GY047: a step changes state without its run, or without a cause.
    InvalidStepTransition,
    /// GY048: a run is inserted for a step that may not start now.
    StepNotStartable,
    /// GY049: a run skips a state (queued, running, ended), ends without its step, has a lease that
    /// is too long, or its input or result changes.
    InvalidRunTransition,
    /// GY050: output, results or system data do not come from a run.
    OutputWithoutRun,
    /// GY051: a log chunk is not written at the end of the log, or no worker has leased the run.
    InvalidLogWrite,
    /// GY052: a node's state changes without a health check, its facts without a source, or a
    /// counter by more than one.
    NodeStateWithoutEvidence,
    /// GY053: a commit writes rows of documents that its review does not list.
    UnlistedRows,
    /// GY054: a commit leaves rows that differ from the documents.
    ProjectionMismatch,
    /// GY057: a person registers too many passkeys.
    TooManyPasskeys,
    /// GY058: no confirmed passkey of the person or of an admin confirms the passkey.
    PasskeyNotConfirmed,
    /// GY059: a verdict is signed with another person's passkey.
    SignatureByOtherPerson,
    /// GY060: approvals lack the signature that the policy requires.
    SignatureMissing,
    /// GY070: a session acts before its second factor is verified.
    SecondFactorRequired,
    /// GY071: an authenticator code is used twice or outside its time window.
    CodeNotValid,
}

impl Refusal {
    pub const ALL: [(&'static str, Self); 54] = [
        ("GY001", Self::AppendOnly),
        ("GY002", Self::IntentOutsideCommit),
        ("GY003", Self::NotNextBlueprint),
        ("GY004", Self::BaseChanged),
        ("GY005", Self::ProposalChanged),
        ("GY006", Self::PolicyChanged),
        ("GY007", Self::NotApproved),
        ("GY008", Self::EpochMismatch),
        ("GY009", Self::IncompleteReview),
        ("GY010", Self::UnlistedDocuments),
        ("GY011", Self::VerdictByAuthor),
        ("GY012", Self::NotAReviewer),
        ("GY013", Self::ReviewSealed),
        ("GY014", Self::IncompleteProjection),
        ("GY015", Self::RunIdentityChanged),
        ("GY016", Self::AlreadyUsed),
        ("GY017", Self::OpenThreads),
        ("GY018", Self::DiscussionDenied),
        ("GY019", Self::CannotCommit),
        ("GY020", Self::RootFoldersOverlap),
        ("GY021", Self::TreeTooDeep),
        ("GY022", Self::OutsideScope),
        ("GY023", Self::DuplicateAddress),
        ("GY024", Self::LastAdmin),
        ("GY025", Self::InvalidGrantScope),
        ("GY026", Self::ReservedName),
        ("GY027", Self::LeavesHold),
        ("GY028", Self::ParentNotAbove),
        ("GY030", Self::NodeRecordOutsideCommit),
        ("GY031", Self::NodeRecordMismatch),
        ("GY032", Self::NodeBusy),
        ("GY035", Self::PersonMismatch),
        ("GY036", Self::InsufficientCredential),
        ("GY037", Self::NotAnAdmin),
        ("GY038", Self::SessionLimitExceeded),
        ("GY056", Self::BarclampVersion),
        ("GY040", Self::ApprovalExcluded),
        ("GY041", Self::CannotConfirmAccess),
        ("GY042", Self::LinkSessionRestricted),
        ("GY044", Self::ActorMismatch),
        ("GY047", Self::InvalidStepTransition),
        ("GY048", Self::StepNotStartable),
        ("GY049", Self::InvalidRunTransition),
        ("GY050", Self::OutputWithoutRun),
        ("GY051", Self::InvalidLogWrite),
        ("GY052", Self::NodeStateWithoutEvidence),
        ("GY053", Self::UnlistedRows),
        ("GY054", Self::ProjectionMismatch),
        ("GY057", Self::TooManyPasskeys),
        ("GY058", Self::PasskeyNotConfirmed),
        ("GY059", Self::SignatureByOtherPerson),
        ("GY060", Self::SignatureMissing),
        ("GY070", Self::SecondFactorRequired),
        ("GY071", Self::CodeNotValid),
    ];

    /// `None` if the SQLSTATE is not one of the guards'.
    pub fn from_sqlstate(state: &str) -> Option<Self> {
        Self::ALL.iter().find(|(code, _)| *code == state).map(|(_, refusal)| *refusal)
    }

    /// `None` if the error is not a guard's refusal.
    pub fn of(error: &sqlx::Error) -> Option<Self> {
        Self::from_sqlstate(&error.as_database_error()?.code()?)
    }
}
