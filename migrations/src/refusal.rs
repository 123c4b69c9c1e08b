//! The guards' refusals as a type, so that callers match codes and not messages.

/// The reason why a guard rejects a statement. One variant for each SQLSTATE of class `GY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// GY001: an append-only row is changed or deleted.
    AppendOnly,
    /// GY002: intent is changed outside a commit.
    IntentOutsideCommit,
    /// GY003: the blueprint does not follow the current one (number, parent, switch or genesis).
    NotTheNext,
    /// GY004: the base of the review has changed.
    BaseMoved,
    /// GY005: the proposal is not open at this version.
    ProposalMovedOn,
    /// GY006: another policy is in force.
    PolicyMoved,
    /// GY007: approvals are missing, or a reviewer objects.
    NotApproved,
    /// GY008: the review is from another epoch (a backup was restored since).
    OtherEpoch,
    /// GY009: the review is incomplete. A deployment is missing in its base, an author or a risk is
    /// missing, or it changes nothing.
    Incomplete,
    /// GY010: the new root differs from its parent in documents that the review does not list.
    OtherDocuments,
    /// GY011: an author gives a verdict.
    AuthorsVerdict,
    /// GY012: the person may not review.
    NotAReviewer,
    /// GY013: rows are added to a review after it was submitted.
    SubmissionSealed,
    /// GY014: a commit ends without a complete projection of its changes.
    NotProjected,
    /// GY015: the identity of a run (step, generation, ...) is changed.
    RunIdentity,
    /// GY016: a single-use row is used again, or a closed one is reopened.
    Spent,
    /// GY017: a discussion thread is open.
    OpenThreads,
    /// GY018: the person may not comment or resolve the thread.
    NoVoice,
    /// GY019: the person may not, or may no longer, commit, switch or put on hold.
    MayNotCommit,
    /// GY020: the root folders of two local nodes overlap.
    FolderTaken,
    /// GY021: a deployment exceeds the depth limit of the tree.
    TooLow,
    /// GY022: a review of a node-scoped proposal changes more than that node.
    BeyondScope,
    /// GY023: another node has this address or MAC address.
    MachineTaken,
    /// GY024: no admin would be left.
    LastAdmin,
    /// GY025: a permission is granted in a deployment that does not exist or is the system
    /// deployment.
    NoPartOfTheTree,
    /// GY026: a person gets the name that Gantry uses for itself.
    OwnName,
    /// GY030: the connection or hints of a node with a document are changed outside a commit.
    RecordOutsideCommit,
    /// GY031: the connection or hints of a node differ from its document.
    OtherRecord,
    /// GY032: the connection or hints of a node change while it has an open run.
    NodeBusy,
    /// GY035: a row names a person for whom the transaction does not act.
    NotThatPerson,
    /// GY036: the row requires a session or a token with another scope.
    NotByToken,
    /// GY037: people, links or passwords are changed without an admin's session or the old
    /// password.
    NotAnAdmin,
    /// GY038: a session is extended beyond its limits.
    SessionExtended,
    /// GY056: the version of a barclamp is invalid, or another spelling of a stored version.
    BarclampVersion,
    /// GY040: approvals do not count because an author gave these people access.
    ApprovalBarred,
    /// GY041: this admin may not confirm the access change.
    MayNotConfirm,
    /// GY042: a session that began with an admin's link acts before its person sets a password, or
    /// gets another admin.
    LinkOfSession,
    /// GY044: an audit entry names another actor than the person for whom the transaction acts.
    OtherActor,
    /// GY047: a step changes state without its run, or without a cause.
    StepMoved,
    /// GY048: a run is inserted for a step that may not start now.
    RunNotDue,
    /// GY049: a run skips a state (queued, running, ended), or its input changes.
    RunMoved,
    /// GY050: output, results or system data do not come from a run.
    ForeignOutput,
    /// GY051: a log chunk is not written at the end of the log, or no worker has leased the run.
    ForeignLog,
    /// GY052: a node's state changes without a health check, or its facts without a source.
    NodeUnseen,
    /// GY053: a commit writes rows of documents that its review does not list.
    NotListed,
    /// GY054: a commit leaves rows that differ from the documents.
    NotAsDocumented,
    /// GY057: a person registers too many passkeys.
    TooManyPasskeys,
    /// GY058: no confirmed passkey of the person or of an admin confirms the passkey.
    PasskeyNotConfirmed,
    /// GY059: a verdict is signed with another person's passkey.
    ForeignSignature,
    /// GY060: approvals lack the signature that the policy requires.
    NotSigned,
    /// GY070: a session acts before its second factor is verified.
    FactorNeeded,
    /// GY071: an authenticator code is used twice or outside its time window.
    CodeUsed,
}

impl Refusal {
    pub const ALL: [(&'static str, Self); 52] = [
        ("GY001", Self::AppendOnly),
        ("GY002", Self::IntentOutsideCommit),
        ("GY003", Self::NotTheNext),
        ("GY004", Self::BaseMoved),
        ("GY005", Self::ProposalMovedOn),
        ("GY006", Self::PolicyMoved),
        ("GY007", Self::NotApproved),
        ("GY008", Self::OtherEpoch),
        ("GY009", Self::Incomplete),
        ("GY010", Self::OtherDocuments),
        ("GY011", Self::AuthorsVerdict),
        ("GY012", Self::NotAReviewer),
        ("GY013", Self::SubmissionSealed),
        ("GY014", Self::NotProjected),
        ("GY015", Self::RunIdentity),
        ("GY016", Self::Spent),
        ("GY017", Self::OpenThreads),
        ("GY018", Self::NoVoice),
        ("GY019", Self::MayNotCommit),
        ("GY020", Self::FolderTaken),
        ("GY021", Self::TooLow),
        ("GY022", Self::BeyondScope),
        ("GY023", Self::MachineTaken),
        ("GY024", Self::LastAdmin),
        ("GY025", Self::NoPartOfTheTree),
        ("GY026", Self::OwnName),
        ("GY030", Self::RecordOutsideCommit),
        ("GY031", Self::OtherRecord),
        ("GY032", Self::NodeBusy),
        ("GY035", Self::NotThatPerson),
        ("GY036", Self::NotByToken),
        ("GY037", Self::NotAnAdmin),
        ("GY038", Self::SessionExtended),
        ("GY056", Self::BarclampVersion),
        ("GY040", Self::ApprovalBarred),
        ("GY041", Self::MayNotConfirm),
        ("GY042", Self::LinkOfSession),
        ("GY044", Self::OtherActor),
        ("GY047", Self::StepMoved),
        ("GY048", Self::RunNotDue),
        ("GY049", Self::RunMoved),
        ("GY050", Self::ForeignOutput),
        ("GY051", Self::ForeignLog),
        ("GY052", Self::NodeUnseen),
        ("GY053", Self::NotListed),
        ("GY054", Self::NotAsDocumented),
        ("GY057", Self::TooManyPasskeys),
        ("GY058", Self::PasskeyNotConfirmed),
        ("GY059", Self::ForeignSignature),
        ("GY060", Self::NotSigned),
        ("GY070", Self::FactorNeeded),
        ("GY071", Self::CodeUsed),
    ];

    /// `None` if the SQLSTATE is not one of the guards'.
    pub fn of_sqlstate(state: &str) -> Option<Self> {
        Self::ALL.iter().find(|(code, _)| *code == state).map(|(_, refusal)| *refusal)
    }

    /// `None` if the error is not a guard's refusal.
    pub fn of(error: &sqlx::Error) -> Option<Self> {
        Self::of_sqlstate(&error.as_database_error()?.code()?)
    }
}
