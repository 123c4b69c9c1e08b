//! The guards' refusals as a type, so that callers match words and not texts.

/// What a guard refused; one for each SQLSTATE of class `GY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// GY001: a row that may only be added is changed or removed.
    AppendOnly,
    /// GY002: intent is changed outside a commit.
    IntentOutsideCommit,
    /// GY003: the target doesn't follow the head.
    NotTheNext,
    /// GY004: the base of the submission has moved.
    BaseMoved,
    /// GY005: the proposal isn't open at that version.
    ProposalMovedOn,
    /// GY006: another policy is in force.
    PolicyMoved,
    /// GY007: approvals are missing, or somebody objects.
    NotApproved,
    /// GY008: the submission is of another epoch.
    OtherEpoch,
    /// GY009: the submission is incomplete.
    Incomplete,
    /// GY010: the new root differs in other documents than the submission lists.
    OtherDocuments,
    /// GY011: an author's verdict.
    AuthorsVerdict,
    /// GY012: the verdict of somebody who may not review.
    NotAReviewer,
    /// GY013: parts are added to a submission after it was made.
    SubmissionSealed,
    /// GY014: a commit ends without having projected what it changes.
    NotProjected,
    /// GY015: what a run is about is changed.
    RunIdentity,
    /// GY016: a one-time thing is used again, or a closed one is opened again.
    Spent,
    /// GY017: a thread of the discussion is open.
    OpenThreads,
    /// GY018: somebody speaks, or resolves a thread, who may not.
    NoVoice,
    /// GY019: somebody commits or switches who may not, or not any more.
    MayNotCommit,
    /// GY020: the folder of a local node and another's lie in one another.
    FolderTaken,
    /// GY021: a deployment lies too far below the first.
    TooLow,
    /// GY022: a submission of a proposal on one node changes more than that node.
    BeyondScope,
    /// GY023: an address or a network card of a node is another's already.
    MachineTaken,
    /// GY024: nobody would be left who may decide about people.
    LastAdmin,
    /// GY025: a permission is given in a part of the tree that is none.
    NoPartOfTheTree,
    /// GY026: a person gets the name under which Gantry itself is told of.
    OwnName,
    /// GY030: the connection or hints of a node with a document are changed outside a commit.
    RecordOutsideCommit,
    /// GY031: the connection or hints of a node are not those of its document.
    OtherRecord,
    /// GY032: the connection or hints of a node change while a run is open there.
    NodeBusy,
    /// GY035: a row in the name of a person that the transaction does not act for.
    NotThatPerson,
    /// GY036: a row that takes a session, or a token with another scope.
    NotByToken,
    /// GY037: people, links or passwords are changed without an admin's session or the old password.
    NotAnAdmin,
    /// GY038: a session is extended beyond its limits.
    SessionExtended,
    /// GY056: the version of a barclamp is invalid, or another spelling of a stored one.
    BarclampVersion,
    /// GY040: approvals do not count, because an author gave those people access.
    ApprovalBarred,
    /// GY041: access is confirmed by an admin who may not confirm it.
    MayNotConfirm,
    /// GY042: a session that began with an admin's link acts before it has a password, or is given another admin.
    LinkOfSession,
    /// GY044: an audit row names another actor than the person that the transaction acts for.
    OtherActor,
    /// GY047: a step moves without its run, or without a cause.
    StepMoved,
    /// GY048: a run is inserted for a step that may not start now.
    RunNotDue,
    /// GY049: a run moves otherwise than from queued to running to ended, or what it was told changes.
    RunMoved,
    /// GY050: output, results or system data are written that no run returned.
    ForeignOutput,
    /// GY051: a log is written that is not at its end, or of a run that no worker has.
    ForeignLog,
    /// GY052: the state of a node changes without a health check, or facts without a witness.
    NodeUnseen,
    /// GY053: a commit writes rows of documents that its submission does not list.
    NotListed,
    /// GY054: a commit leaves rows that differ from the documents.
    NotAsDocumented,
    /// GY057: a person registers too many passkeys.
    TooManyPasskeys,
    /// GY058: a passkey is confirmed without a confirmed passkey of its person or of an admin.
    PasskeyNotConfirmed,
    /// GY059: a verdict is signed by a passkey that is not its person's.
    ForeignSignature,
    /// GY060: approvals lack the signature that the policy demands.
    NotSigned,
    /// GY070: a session acts before its second factor is presented.
    FactorNeeded,
    /// GY071: a code of an authenticator app is used again, or is not of this time.
    CodeUsed,
}

impl Refusal {
    /// Every refusal and its SQLSTATE.
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

    /// The refusal of this SQLSTATE; `None` for other classes' states.
    pub fn of_sqlstate(state: &str) -> Option<Self> {
        Self::ALL.iter().find(|(code, _)| *code == state).map(|(_, refusal)| *refusal)
    }

    /// The refusal in a database error; `None` when it is another error.
    pub fn of(error: &sqlx::Error) -> Option<Self> {
        Self::of_sqlstate(&error.as_database_error()?.code()?)
    }
}
