package fakeaws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// RunCommand runs a command of the aws command line with an access key, and returns its output. It
// supports aws iam create-role, put-role-policy and tag-role, with the flags that the
// documentation uses.
func (s *Server) RunCommand(ctx context.Context, key AccessKey, line string) (string, error) {
	words, err := shellWords(line)
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	if len(words) < 3 || words[0] != "aws" || words[1] != "iam" {
		return "", fmt.Errorf("%s: want a command of aws iam", line)
	}
	flags, err := parseFlags(words[3:])
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	client := iam.NewFromConfig(aws.Config{
		Region: globalRegions["aws"], BaseEndpoint: aws.String(s.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
	})
	role := flags.one("role-name")
	tags, err := flags.tags()
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	var run func() (string, error)
	switch words[2] {
	case "create-role":
		input := &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: flags.one("assume-role-policy-document"), Tags: tags}
		run = func() (string, error) {
			made, err := client.CreateRole(ctx, input)
			if err != nil {
				return "", err
			}
			return printed(map[string]any{"Role": map[string]any{"RoleName": made.Role.RoleName, "RoleId": made.Role.RoleId, "Arn": made.Role.Arn}})
		}
	case "put-role-policy":
		input := &iam.PutRolePolicyInput{RoleName: role, PolicyName: flags.one("policy-name"), PolicyDocument: flags.one("policy-document")}
		run = func() (string, error) {
			_, err := client.PutRolePolicy(ctx, input)
			return "", err
		}
	case "tag-role":
		run = func() (string, error) {
			_, err := client.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: tags})
			return "", err
		}
	default:
		return "", fmt.Errorf("aws iam %s is not supported", words[2])
	}
	if unused := flags.unused(); len(unused) > 0 {
		return "", fmt.Errorf("%s: unsupported flags: %s", line, strings.Join(unused, ", "))
	}
	output, err := run()
	if err != nil {
		return "", fmt.Errorf("aws iam %s: %w", words[2], err)
	}
	return output, nil
}

func printed(answer any) (string, error) {
	content, err := json.MarshalIndent(answer, "", "    ")
	return string(content) + "\n", err
}

// commandFlags are the flags of a command line. Reading a flag removes it.
type commandFlags map[string][]string

func parseFlags(words []string) (commandFlags, error) {
	flags := commandFlags{}
	name := ""
	for _, word := range words {
		flag, isFlag := strings.CutPrefix(word, "--")
		switch {
		case isFlag && flags[flag] != nil:
			return nil, fmt.Errorf("flag --%s is set twice", flag)
		case isFlag:
			name = flag
			flags[name] = []string{}
		case name == "":
			return nil, fmt.Errorf("%q is not a flag", word)
		default:
			flags[name] = append(flags[name], word)
		}
	}
	return flags, nil
}

// one returns the only value of a flag, or nil if it has none or several.
func (f commandFlags) one(name string) *string {
	values := f[name]
	delete(f, name)
	if len(values) != 1 {
		return nil
	}
	return &values[0]
}

func (f commandFlags) tags() ([]types.Tag, error) {
	var tags []types.Tag
	for _, word := range f["tags"] {
		key, value, ok := strings.Cut(word, ",Value=")
		key, isKey := strings.CutPrefix(key, "Key=")
		if !ok || !isKey {
			return nil, fmt.Errorf("--tags %s: must be Key=key,Value=value", word)
		}
		tags = append(tags, types.Tag{Key: &key, Value: &value})
	}
	delete(f, "tags")
	return tags, nil
}

func (f commandFlags) unused() []string {
	var names []string
	for name := range f {
		names = append(names, "--"+name)
	}
	return names
}

// shellWords splits a line into words as a shell does. It supports only single quotes and
// backslashes, and returns an error for any other special character.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quoted, escaped := false, false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\'':
			begun, quoted = true, !quoted
		case quoted:
			word.WriteRune(r)
		case r == '\\':
			begun, escaped = true, true
		case r == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case strings.ContainsRune("\"$`;&|<>(){}*?[]!#~\n\t", r):
			return nil, fmt.Errorf("unsupported special character %q", r)
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	if quoted || escaped {
		return nil, errors.New("unterminated quote or escape")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
