//! How single programs take secrets.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How a program takes secrets.
pub(super) struct Habits {
    pub(super) programs: &'static [&'static str],
    /// Words of which one must follow, or the program takes none.
    pub(super) when: &'static [&'static str],
    /// Behind these words.
    pub(super) next: &'static [&'static str],
    /// In the same word, behind these letters.
    pub(super) glued: &'static [&'static str],
    /// A user and the password, in the same word or in the next.
    pub(super) user: &'static [(&'static str, char)],
    /// So many words behind one that begins like this.
    pub(super) later: &'static [(&'static str, usize)],
    /// All pairs behind one of `when`.
    pub(super) pairs: bool,
    pub(super) ends_with_it: bool,
    /// `user/password@host` anywhere.
    pub(super) logins: bool,
    /// `-b` takes cookies, `-x` a proxy.
    pub(super) cookies: bool,
}

pub(super) static NONE: Habits = Habits {
    programs: &[],
    when: &[],
    next: &[],
    glued: &[],
    user: &[],
    later: &[],
    pairs: false,
    ends_with_it: false,
    logins: false,
    cookies: false,
};

pub(super) static HABITS: &[Habits] = &[
    Habits {
        programs: &[
            "mariadb",
            "mariadb-admin",
            "mariadb-check",
            "mariadb-dump",
            "mariadb-import",
            "mariadb-show",
            "mysql",
            "mysqlbinlog",
            "mysqlcheck",
            "mysqldump",
            "mysqlimport",
            "mysqlpump",
            "mysqlshow",
            "mysqlslap",
        ],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["mysqladmin"],
        next: &["password"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &[
            "beeline",
            "couchbase-cli",
            "cqlsh",
            "cypher-shell",
            "mongo",
            "mongodump",
            "mongoexport",
            "mongofiles",
            "mongoimport",
            "mongorestore",
            "mongosh",
            "mongostat",
            "mongotop",
            "ncftp",
            "ncftpget",
            "ncftpput",
            "racadm",
            "rdesktop",
            "sshpass",
            "twine",
            "useradd",
            "usermod",
        ],
        next: &["-p"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["7z", "7za", "7zr", "7zz", "rar", "unrar"],
        glued: &["-p", "-hp"],
        ..NONE
    },
    Habits {
        programs: &[
            "az", "buildah", "cf", "crane", "docker", "helm", "ibmcloud", "nerdctl", "oc", "oras", "podman", "skopeo",
        ],
        when: &["login"],
        next: &["-p"],
        glued: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["keydb-cli", "redis-cli", "valkey-cli"],
        next: &["-a", "AUTH", "auth", "requirepass"],
        ..NONE
    },
    Habits {
        programs: &[
            "ldapadd",
            "ldapcompare",
            "ldapdelete",
            "ldapexop",
            "ldapmodify",
            "ldapmodrdn",
            "ldapsearch",
            "ldapwhoami",
        ],
        next: &["-w"],
        glued: &["-w"],
        ..NONE
    },
    Habits {
        programs: &["ldappasswd"],
        next: &["-a", "-s", "-w"],
        glued: &["-a", "-s", "-w"],
        ..NONE
    },
    Habits {
        programs: &[
            "bcp",
            "ipmitool",
            "mosquitto_pub",
            "mosquitto_rr",
            "mosquitto_sub",
            "osql",
            "sqlcmd",
            "tsql",
            "unzip",
            "zip",
        ],
        next: &["-P"],
        glued: &["-P"],
        ..NONE
    },
    Habits {
        programs: &["curl"],
        user: &[("-u", ':'), ("-U", ':'), ("-E", ':'), ("--cert", ':')],
        next: &["--pass"],
        cookies: true,
        ..NONE
    },
    Habits {
        programs: &["http", "https", "xh", "xhs"],
        user: &[("-a", ':')],
        ..NONE
    },
    Habits {
        programs: &["net", "rpcclient", "smbclient", "smbget"],
        user: &[("-U", '%'), ("--user", '%')],
        ..NONE
    },
    Habits {
        programs: &["lftp"],
        user: &[("-u", ',')],
        ..NONE
    },
    Habits {
        programs: &["wlfreerdp", "xfreerdp", "xfreerdp3"],
        glued: &["/p:"],
        ..NONE
    },
    Habits {
        programs: &["expdp", "impdp", "rman", "sqlldr", "sqlplus"],
        logins: true,
        ..NONE
    },
    Habits {
        programs: &["pkcs11-tool", "pkcs15-tool", "softhsm2-util", "yubico-piv-tool"],
        next: &["--new-pin", "--pin", "--puk", "--so-pin"],
        ..NONE
    },
    Habits {
        programs: &["openssl"],
        when: &["passwd"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["openssl"],
        next: &["-hmac", "-k", "-K", "-pass", "-passin", "-passout"],
        ..NONE
    },
    Habits {
        programs: &["plink", "pscp", "psftp"],
        next: &["-pw"],
        ..NONE
    },
    Habits {
        programs: &["snmpbulkwalk", "snmpget", "snmpset", "snmptrap", "snmpwalk"],
        next: &["-A", "-X", "-c"],
        ..NONE
    },
    Habits {
        programs: &["nmcli", "wpa_cli"],
        next: &["802-11-wireless-security.psk", "password", "psk", "wifi-sec.psk"],
        ..NONE
    },
    Habits {
        programs: &["ssh-keygen"],
        next: &["-N", "-P"],
        ..NONE
    },
    Habits {
        programs: &["cargo", "wandb"],
        when: &["login"],
        next: &["login"],
        ..NONE
    },
    Habits {
        programs: &["bw"],
        next: &["unlock"],
        later: &[("login", 2)],
        ..NONE
    },
    Habits {
        programs: &["snyk"],
        next: &["auth"],
        ..NONE
    },
    Habits {
        programs: &["npm", "pnpm", "yarn"],
        next: &["--otp"],
        glued: &["--otp="],
        ..NONE
    },
    Habits {
        programs: &["ngrok"],
        next: &["add-authtoken", "authtoken"],
        ..NONE
    },
    Habits {
        programs: &["doctl"],
        when: &["auth"],
        next: &["-t"],
        ..NONE
    },
    Habits {
        programs: &["dotnet"],
        when: &["push"],
        next: &["-k"],
        ..NONE
    },
    Habits {
        programs: &["pulumi"],
        when: &["--secret"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["htpasswd"],
        when: &[
            "-b", "-bc", "-cb", "-nb", "-bn", "-bB", "-Bb", "-nbB", "-nBb", "-cbB", "-bcB",
        ],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["rabbitmqctl"],
        when: &["add_user", "authenticate_user", "change_password"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["wpa_passphrase"],
        ends_with_it: true,
        ..NONE
    },
    Habits {
        programs: &["gh"],
        when: &["secret"],
        next: &["-b", "--body"],
        glued: &["-b", "--body="],
        ..NONE
    },
    Habits {
        programs: &["vault"],
        when: &["patch", "put", "write"],
        pairs: true,
        ..NONE
    },
    Habits {
        programs: &["aws"],
        when: &["--type=SecureString", "SecureString"],
        next: &["--value"],
        glued: &["--value="],
        ..NONE
    },
    Habits {
        programs: &["az"],
        when: &["secret"],
        next: &["--value"],
        glued: &["--value="],
        ..NONE
    },
    Habits {
        programs: &["eas"],
        when: &["env:create", "secret:create"],
        next: &["--value"],
        glued: &["--value="],
        ..NONE
    },
    Habits {
        programs: &["ansible-vault"],
        next: &["encrypt_string"],
        ..NONE
    },
    Habits {
        programs: &["keytool"],
        next: &["-new"],
        ..NONE
    },
    Habits {
        programs: &["poetry"],
        when: &["publish"],
        next: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["composer", "poetry"],
        when: &["config"],
        later: &[("github-oauth.", 1), ("gitlab-token.", 1), ("http-basic.", 2)],
        ..NONE
    },
    Habits {
        programs: &["expo"],
        when: &["login"],
        next: &["-p"],
        ..NONE
    },
    Habits {
        programs: &["codecov", "codecovcli", "vercel"],
        next: &["-t"],
        ..NONE
    },
    Habits {
        programs: &["rclone"],
        when: &["config", "obscure"],
        next: &["obscure", "pass"],
        ..NONE
    },
    Habits {
        programs: &["mc"],
        when: &["alias"],
        later: &[("set", 4)],
        ..NONE
    },
    Habits {
        programs: &["vault"],
        next: &["login"],
        ..NONE
    },
    Habits {
        programs: &["fly", "flyctl", "heroku", "supabase"],
        when: &["config:set", "secrets"],
        pairs: true,
        ..NONE
    },
];

/// The habits of a program by its name.
pub(super) static PROGRAMS: LazyLock<HashMap<&str, Vec<&Habits>>> = LazyLock::new(|| {
    let mut programs: HashMap<&str, Vec<&Habits>> = HashMap::new();
    for habits in HABITS {
        for name in habits.programs {
            programs.entry(name).or_default().push(habits);
        }
    }
    programs
});

impl Habits {
    /// Whether the words say so; they are searched once.
    pub(super) fn apply_to(&'static self, words: &[&str], asked: &mut Vec<(&'static Habits, bool)>) -> bool {
        if self.when.is_empty() {
            return true;
        }
        if let Some((_, applies)) = asked.iter().find(|(habits, _)| std::ptr::eq(*habits, self)) {
            return *applies;
        }
        let applies = words.iter().any(|word| self.when.contains(word));
        asked.push((self, applies));
        applies
    }
}
