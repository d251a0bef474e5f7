//! What names and options say about the words behind them.

use crate::audit::redact::{Config, REPLACEMENT, Redactor, is_secret_name};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

/// Each holds `hunter2x` behind a scheme, or in the place of one.
#[test]
fn credentials_of_any_scheme_are_hidden_to_the_end_of_their_header() {
    for scheme in [
        "Bot",
        "SSWS",
        "GenieKey",
        "Key",
        "NTLM",
        "Splunk",
        "OAuth",
        "Zoho-oauthtoken",
        "Bearer",
        "AWS4-HMAC-SHA256 Credential=AK/x, Signature=",
        "OAuth realm=\"a b\", oauth_token=\"q\",",
        "Custom a b",
        "",
    ] {
        for name in ["Authorization", "authorization", "Proxy-Authorization"] {
            let header = format!("{name}: {scheme} hunter2x");
            let shown = plain().redact_text(&header).into_owned();
            assert!(!shown.contains("hunter") && shown.contains(REPLACEMENT), "{shown}");
            if !scheme.contains('"') {
                let quoted = format!("see \"{header}\" there");
                let shown = plain().redact_text(&quoted).into_owned();
                assert!(!shown.contains("hunter") && shown.ends_with("\" there"), "{shown}");
            }
            for option in ["--header=", "--header ", "-H", "-H "] {
                let line = format!("wget {option}'{header}' https://host");
                let shown = plain().redact_line(&line).into_owned();
                assert!(
                    !shown.contains("hunter") && shown.ends_with("' https://host"),
                    "{shown}"
                );
            }
            let args = [
                "-c".to_owned(),
                format!("http.extraheader={header}"),
                "fetch".to_owned(),
            ];
            let shown = plain().redact_args("git", &args).concat();
            assert!(!shown.contains("hunter") && shown.ends_with("fetch"), "{shown}");
        }
    }
    assert_eq!(
        plain().redact_text("Authorization: Bot hunter2x\nHost: x"),
        "Authorization: Bot [redacted]\nHost: x"
    );
}

#[test]
fn what_only_speaks_about_a_secret_is_shown() {
    for text in [
        "aws secretsmanager get-secret-value --secret-id prod/db/master",
        "aws x --secret-arn arn:aws:x --token-ids a",
        "vllm serve --eos-token-id 2",
        "git commit -m 'auth: drop all sessions on logout'",
        "git commit -m 'token: keep them no longer'",
        "psql --no-password -h prod -c 'drop table x'",
        "mysql --skip-password app",
        "ansible-playbook --ask-become-pass site.yml",
        "ssh -o PasswordAuthentication=no host",
        "curl -b cookies.txt https://host",
        "curl --cookie cookies.txt --cookie-jar jar.txt https://host",
        "curl -x proxy:3128 https://host",
        "curl -x http://proxy:3128 https://host",
        "docker run -u node:node image",
        "docker exec --user node:node db ls",
        "sudo -u ann:staff ls",
        "journalctl -u sshd:main",
        "PWD=/tmp OLDPWD=/ ls",
        "curl 'https://host/?key=name' -o a:b",
        "curl -F file=@a:b https://host",
        r#"curl -d {"to":"a@b"} https://host"#,
        "cd /tmp;PWD=/tmp",
        "jq --arg name value .",
        "aws ssm put-parameter --type String --value a",
        "poetry config http-basic.x",
        "rclone copy pass remote:a",
        "az network set --value a",
        "mc cp a b c d e",
        "vercel env ls production",
        "docker secret ls",
        "deploy --tokens 512 --max-tokens 512 --key-file path",
        "deploy tokens=512 pass=12",
    ] {
        assert_eq!(plain().redact_line(text), text);
        assert_eq!(plain().redact_text(text), text);
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        assert_eq!(plain().redact_args(&words[0], &words[1..]), words[1..], "{words:?}");
    }
    for name in ["secret_id", "VAULT_SECRET_ID", "db-token", "--skip-key"] {
        assert_eq!(is_secret_name(name), name != "--skip-key", "{name}");
    }
}

/// Each holds `hunter2x` as a secret.
#[test]
fn values_are_known_by_more_ways_of_naming_them() {
    for text in [
        "deploy --pwd hunter2x",
        "deploy --pwd=hunter2x",
        "deploy 'Server=h;Uid=a;Pwd=hunter2x;'",
        "deploy 'SERVER=h;UID=a;PWD=hunter2x'",
        "deploy 'server=h;uid=a;pwd=hunter2x'",
        "mount -t cifs -o user=a,pass=hunter2x //h/s /m",
        "TOKEN+=hunter2x; deploy",
        "TOKEN+='a hunter2x' deploy",
        "cat <<E\n<settings><password>a hunter2x</password></settings>\nE",
        "curl -x ann:hunter2x@proxy:3128 https://host",
        "curl --proxy ann:hunter2x@proxy https://host",
        "printf -v TOKEN %s hunter2x",
        "printf -v TOKEN hunter2x",
        "read -r PASSWORD <<< hunter2x",
        "read -r USER PASSWORD <<< 'ann hunter2x'",
        "curl -b id=hunter2x https://host",
        "curl --cookie 'id=hunter2x' https://host",
        "deploy --cookie hunter2x",
        "deploy --session-cookie=hunter2x",
        "sudo curl -u ann:hunter2x https://host",
        "docker exec db curl -u ann:hunter2x https://host",
        "docker login -u ann:hunter2x",
        "git commit -m 'token: hunter2x'",
        "git commit -m 'password: hunter2x'",
        "deploy 'X-My-Token: hunter2x'",
        "sqlplus -s ann/hunter2x@db @report",
        "curl ann:hunter2x@127.0.0.1:1/",
        "curl 'https://maps.example.org/?key=AbCd01234567hunter2x&a=b'",
        "printf 'machine x\\nlogin ann\\npassword hunter2x\\n' > .netrc",
        "xfreerdp /u:ann /p:hunter2x /v:host",
        "pkcs11-tool --sign --pin hunter2x",
        "openssl passwd -6 hunter2x",
        "TOKENS=(a 'b hunter2x')",
        "token=$(echo hunter2x) deploy",
        "export API_TOKEN=\"$(printf %s hunter2x | base64)\"",
        "python3 -c 'import os; os.environ[\"API_TOKEN\"]=\"hunter2x\"'",
        "cat > .env <<E\nDB_PASSWORD=a b hunter2x\nE",
        "cat > c.yaml <<E\npassword: a b hunter2x\nE",
        "cat > c.yaml <<E\ndb:\n  password: |\n    a b\n    hunter2x\nE",
        "cat > .pgpass <<E\ndb:5432:app:ann:hunter2x\nE",
        "git clone https://aB30hunter2x@host/a",
        "gcloud deploy --secret hunter2x",
        "docker run image --secret hunter2x",
        "setx GITHUB_TOKEN hunter2x",
        "cmd.exe /c setx GITHUB_TOKEN hunter2x",
        "npm publish --otp=hunter2x",
        "npm publish --otp hunter2x",
        "snyk auth hunter2x",
        "bw unlock hunter2x",
        "pulumi config set name hunter2x --secret",
        "beeline -u jdbc:hive2://h -n u -p hunter2x",
        "snmpwalk -v2c -c hunter2x host",
        "echo hunter2x | wrangler secret put KEY",
        "echo \"define('DB_PASSWORD', 'hunter2x');\"",
        "echo \"<add key='Password' value='hunter2x'/>\"",
        "cat > e.yaml <<E\n- name: DB_PASSWORD\n  value: hunter2x\nE",
        "jq -n --arg password hunter2x '$password'",
        "jq --argjson api_token hunter2x .",
        "csh -c 'setenv API_TOKEN hunter2x'",
        "cat > Dockerfile <<E\nENV TOKEN hunter2x\nE",
        "cat > c.yaml <<E\npassword:\n  hunter2x\nE",
        "curl -d '{\"password\": [\"a hunter2x\"]}' https://host",
        "curl -d '{\"token\": {\"value\": \"a hunter2x\"}}' https://host",
        "curl -H 'Ocp-Apim-Subscription-Key: hunter2x' https://host",
        "curl -H 'X-Functions-Key: hunter2x' https://host",
        "deploy --psk hunter2x",
        "deploy --tokens hunter2x",
        "aws ssm put-parameter --name x --type SecureString --value hunter2x",
        "aws ssm put-parameter --name x --value=hunter2x --type=SecureString",
        "az keyvault secret set --vault-name v --name x --value hunter2x",
        "eas secret:create --name X --value hunter2x",
        "netlify env:set API_KEY hunter2x",
        "ansible-vault encrypt_string hunter2x --name x",
        "helm install x y --set env[0].name=PASSWORD,env[0].value=hunter2x",
        "kubectl patch secret x -p '{\"stringData\":{\"any\":\"hunter2x\"}}'",
        "keytool -importkeystore -srcstorepass hunter2x",
        "keytool -importkeystore -deststorepass hunter2x -srckeypass hunter2x",
        "keytool -storepasswd -new hunter2x",
        "openssl dgst -sha256 -hmac hunter2x file",
        "poetry publish -u __token__ -p hunter2x",
        "poetry config http-basic.x ann hunter2x",
        "composer config http-basic.x ann hunter2x",
        "composer config --global github-oauth.github.com hunter2x",
        "expo login -u ann -p hunter2x",
        "codecov -t hunter2x",
        "vercel deploy -t hunter2x",
        "ldappasswd -s hunter2x -D x",
        "ldappasswd -x -w hunter2x",
        "nmcli con modify x wifi-sec.psk hunter2x",
        "wpa_cli set_network 0 psk '\"hunter2x\"'",
        "rclone config create r sftp user ann pass hunter2x",
        "rclone obscure hunter2x",
        "mc alias set m http://h ACCESS hunter2x",
        "bw login ann@x hunter2x",
        "curl -K - <<< 'user = \"ann:hunter2x\"'",
        "printf 'SECRET_KEY=%s\\n' hunter2x >> .env",
        "printf '%s=%s\\n' API_TOKEN hunter2x >> .env",
        "printf 'user=%s password=%s\\n' ann hunter2x bob bobs2x",
        "mysql -e \"SET PASSWORD FOR 'u'@'h' = 'hunter2x'\"",
        "mysql -e \"SET PASSWORD = 'hunter2x'\"",
        "mysql -e \"SET PASSWORD FOR 'u'@'h' = PASSWORD('hunter2x')\"",
        "mysql -e \"ALTER USER u IDENTIFIED WITH mysql_native_password BY 'hunter2x'\"",
        "sqlite3 db \"PRAGMA key='hunter2x'\"",
        "mongosh --eval 'db.createUser({user:\"u\",pwd:\"hunter2x\"})'",
        "echo hunter2x | gh secret set NAME",
        "echo hunter2x | docker secret create name -",
        "echo hunter2x | vault login -",
        "echo -n hunter2x | gcloud secrets create x --data-file=-",
        "gcloud secrets versions add x --data-file=- <<< hunter2x",
        "echo hunter2x | kubectl create secret generic x --from-file=password=/dev/stdin",
        "echo hunter2x | vercel env add NAME production",
        "deploy pass=hunter2x",
    ] {
        let shown = plain().redact_line(text);
        assert!(!shown.contains("2x") && shown.contains(REPLACEMENT), "{text}\n{shown}");
    }
    assert_eq!(
        plain().redact_text("<password>a b</password><name>x</name><token-file>y</token-file>"),
        "<password>[redacted]</password><name>x</name><token-file>y</token-file>"
    );
}

/// Each holds `hunter22x` as a secret.
#[test]
fn values_in_what_is_printed_are_known_by_their_lines() {
    for text in [
        "pass: hunter22x",
        "user: ann\npass: hunter22x\n",
        "smtp:\n  pass: hunter22x\n",
        "passwords:\n  - hunter22x\n",
        "passwords:\n- hunter22x\n- other\n",
        "{\"stringData\": {\"any\": \"hunter22x\"}}",
        "{\"pwd\": \"hunter22x\"}",
        "user = \"ann:hunter22x\"",
    ] {
        let shown = plain().redact_text(text);
        assert!(!shown.contains("22x") && shown.contains(REPLACEMENT), "{text}\n{shown}");
    }
    for text in [
        "pass: 12",
        "pass: test_login_2",
        "pass: tests/login2.rs",
        "PASS: login2test",
        "{\"pwd\": \"/home/ann\"}",
        "{\"pwd\": \"C:\\\\Users\"}",
        "user = \"ann\"",
        "{\"data\": {\"any\": \"x\"}}",
    ] {
        assert_eq!(plain().redact_text(text), text);
    }
}

/// What takes a secret takes no command with it.
#[test]
fn what_is_put_behind_a_name_is_seen_where_a_shell_may_find_a_command() {
    for line in [
        "printf 'TOKEN=%s\\n' 'x; rm -rf work' >> .env",
        "printf 'TOKEN=%s %s -rf work' x rm | sh",
        "printf 'TOKEN=x;%s' 'rm -rf work' | sh",
        "printf 'TOKEN=%s' \"$(rm -rf work)\"",
        "echo 'rm -rf work' | sh secret set",
        "echo \"$(rm -rf work)\" | gh secret set NAME",
        "echo 'rm -rf work' | docker run -i image secret create -",
        "echo 'rm -rf work' | kubectl exec -i p -- app create secret --from-file=a=/dev/stdin",
        "user=\"a:rm -rf work\"; eval \"${user#a:}\"",
        "python3 -c 'user = \"a:rm\"; os.system(user[2:] + \" -rf work\")'",
    ] {
        let shown = plain().redact_line(line);
        assert!(shown.contains("-rf work") && shown.contains("rm"), "{line}\n{shown}");
    }
}
